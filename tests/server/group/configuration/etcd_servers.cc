#include "tests/server/group/configuration/etcd_servers.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "common/check.h"

namespace rkv::server {

namespace {

// A free port, and a socket that keeps it: the kernel gives a bound port to no connection of
// others, while etcd can listen on it, because both set SO_REUSEADDR and this socket does not
// listen. So the port is still free when etcd starts again.
struct KeptPort {
  int socket = -1;
  int number = 0;
};

KeptPort keep_free_port(const std::string& of) {
  KeptPort port{.socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  RKV_CHECK(::inet_pton(AF_INET, of.c_str(), &address.sin_addr) == 1 &&
                ::setsockopt(port.socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
                ::bind(port.socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                ::getsockname(port.socket, reinterpret_cast<sockaddr*>(&address), &length) == 0,
            "no free port");
  port.number = ntohs(address.sin_port);
  return port;
}

}  // namespace

EtcdServers::EtcdServers(std::size_t count, std::string address, std::string arguments)
    : address_(std::move(address)),
      arguments_(std::move(arguments)),
      scheme_(arguments_.find("--cert-file") == std::string::npos ? "http" : "https"),
      servers_(count) {
  std::string name = std::filesystem::temp_directory_path() / "rkv-etcd-XXXXXX";
  RKV_CHECK(::mkdtemp(name.data()) != nullptr, "no folder for etcd's data");
  folder_ = name;
  for (One& server : servers_) {
    const KeptPort client = keep_free_port(address_);
    const KeptPort peer = keep_free_port(address_);
    server.client_port = client.number;
    server.peer_port = peer.number;
    kept_ports_.insert(kept_ports_.end(), {client.socket, peer.socket});
  }
  for (std::size_t i = 0; i < count; ++i)
    start(i);
  for (std::size_t i = 0; i < count; ++i)
    wait_for(i);
}

EtcdServers::~EtcdServers() {
  for (std::size_t i = 0; i < servers_.size(); ++i)
    kill(i);
  for (const int socket : kept_ports_)
    ::close(socket);
  std::filesystem::remove_all(folder_);
}

std::vector<std::string> EtcdServers::addresses() const {
  std::vector<std::string> all;
  for (const One& server : servers_)
    all.push_back(fmt::format("{}:{}", address_, server.client_port));
  return all;
}

void EtcdServers::start(std::size_t number) {
  One& server = servers_[number];
  std::string cluster;
  for (std::size_t i = 0; i < servers_.size(); ++i)
    cluster +=
        fmt::format("{}n{}=http://{}:{}", i == 0 ? "" : ",", i, address_, servers_[i].peer_port);
  const std::string client = fmt::format("{}://{}:{}", scheme_, address_, server.client_port);
  const std::string peer = fmt::format("http://{}:{}", address_, server.peer_port);
  const std::string command = fmt::format(
      "exec etcd --name n{0} --data-dir '{1}/n{0}' --listen-client-urls {2} "
      "--advertise-client-urls "
      "{2} --listen-peer-urls {3} --initial-advertise-peer-urls {3} --initial-cluster {4} "
      "--heartbeat-interval 100 --election-timeout 500 {5} >>'{1}/n{0}.log' 2>&1",
      number, folder_.string(), client, peer, cluster, arguments_);
  server.process = ::fork();
  RKV_CHECK(server.process >= 0, "no process for etcd");
  if (server.process != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves no etcd behind
  ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  ::_exit(127);
}

void EtcdServers::wait_for(std::size_t number) const {
  const std::string command = fmt::format(
      "ETCDCTL_API=3 etcdctl --endpoints={}://{}:{} --command-timeout=1s endpoint health "
      ">/dev/null 2>&1",
      scheme_, address_, servers_[number].client_port);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::system(command.c_str()) != 0) {
    if (std::chrono::steady_clock::now() >= end) {
      std::system(fmt::format("tail -n 20 '{}/n{}.log' >&2", folder_.string(), number).c_str());
      RKV_CHECK(false, "etcd does not answer: is etcd-server installed? Its log is above");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void EtcdServers::kill(std::size_t number) {
  One& server = servers_[number];
  if (server.process <= 0) return;
  ::kill(server.process, SIGKILL);
  ::waitpid(server.process, nullptr, 0);
  server.process = -1;
}

void EtcdServers::lose_data(std::size_t number) {
  kill(number);
  std::filesystem::remove_all(folder_ / fmt::format("n{}", number));
}

void EtcdServers::fill() const {
  const std::string command = fmt::format(
      "export ETCDCTL_API=3; for i in $(seq 1000); do head -c 300000 /dev/urandom | base64 -w0 | "
      "etcdctl --endpoints={} put filler$i >/dev/null 2>&1 || exit 0; done; exit 1",
      addresses().front());
  RKV_CHECK(std::system(command.c_str()) == 0, "etcd has room for all that");
}

void EtcdServers::pause(std::size_t number) {
  const pid_t process = servers_[number].process;
  ::kill(process, SIGSTOP);
  // kill() returns before the threads stop: one that waits for a disk stops after that.
  int status = 0;
  RKV_CHECK(::waitpid(process, &status, WUNTRACED) == process && WIFSTOPPED(status),
            "etcd ended instead of being paused");
}

void EtcdServers::resume(std::size_t number) {
  ::kill(servers_[number].process, SIGCONT);
}

void EtcdServers::control(const std::string& arguments) const {
  const std::string command = fmt::format("ETCDCTL_API=3 etcdctl --endpoints={}://{} {} >/dev/null",
                                          scheme_, addresses().front(), arguments);
  RKV_CHECK(std::system(command.c_str()) == 0, "etcdctl failed");
}

}  // namespace rkv::server
