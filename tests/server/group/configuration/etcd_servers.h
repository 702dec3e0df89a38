// EtcdServers: etcd processes on free ports of this host, for tests. Their data is in a new folder,
// which is removed at the end. Their clients are on this host too, unless it is given an address.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace rkv::server {

class EtcdServers {
 public:
  // Starts `count` servers of one cluster and waits until all of them answer. Aborts if they do
  // not. `address`: an IPv4 address of this host.
  // `arguments`: further ones of each server. With --cert-file clients come by TLS, etcdctl too,
  // which then finds its files in the environment.
  explicit EtcdServers(std::size_t count, std::string address = "127.0.0.1",
                       std::string arguments = "");
  ~EtcdServers();  // kills what runs
  EtcdServers(const EtcdServers&) = delete;
  EtcdServers& operator=(const EtcdServers&) = delete;

  // HOST:PORT of each server, for clients.
  std::vector<std::string> addresses() const;
  void start(std::size_t number);  // again, after kill(); does not wait until it answers
  // Waits until the server answers as one of a majority. Aborts if it does not within a minute.
  void wait_for(std::size_t number) const;
  void kill(std::size_t number);  // and waits for its end
  // Its data too: the server that is started next is a new one. REQUIRES: there is one server.
  void lose_data(std::size_t number);
  void pause(std::size_t number);   // SIGSTOP; waits until it has stopped
  void resume(std::size_t number);  // SIGCONT
  // Runs etcdctl with these arguments at the first server; aborts if it fails.
  void control(const std::string& arguments) const;
  // Writes until the first server has used up its space, and stores nothing more. REQUIRES:
  // --quota-backend-bytes of some MB.
  void fill() const;

 private:
  struct One {
    int client_port = 0;
    int peer_port = 0;
    pid_t process = -1;
  };

  const std::string address_;
  const std::string arguments_;
  const std::string scheme_;
  std::filesystem::path folder_;
  std::vector<One> servers_;
  std::vector<int> kept_ports_;  // sockets
};

}  // namespace rkv::server
