// ReplicaGroup: a replicated group of kvservers in processes of their own, with a real etcd, on
// this host. Its clients come over the transport under test (world.h), and the log goes to the
// backups over it too, once they have proved by TCP that they belong to the group.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "rkv/client.h"
#include "server/group/configuration/configuration_store.h"
#include "tests/server/group/configuration/etcd_servers.h"
#include "tests/system/process.h"
#include "tests/system/world.h"

namespace rkv::testing_support {

// Whether `holds` within three minutes, in which an emulated processor starts a server.
template <class Condition>
bool holds_in_time(Condition holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (std::chrono::steady_clock::now() < end) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class ReplicaGroup {
 public:
  // Where a replica runs, if its network is not this process's own.
  struct Host {
    std::string address;
    std::vector<std::string> enter;  // an argv that runs the rest of it there
  };
  // Starts etcd and no replica. `arguments` are added to those of each replica. `program`: what
  // each replica runs, with its first arguments.
  // The first replica founds the group. `of_etcd`: arguments of etcd.
  explicit ReplicaGroup(std::size_t replicas, std::vector<std::string> arguments = {},
                        std::vector<std::string> program = {RKV_KVSERVER},
                        const std::string& of_etcd = "");
  // A replica on each of the hosts, and etcd at an address of this process.
  ReplicaGroup(const std::vector<Host>& hosts, const std::string& etcd,
               std::vector<std::string> arguments = {});

  // Clients that are made from now on are this user's.
  void connect_as(const std::string& user, const std::string& secret) {
    user_ = user;
    secret_ = secret;
  }
  // Starts all replicas, the first one alone until it serves, and waits until all are in sync.
  void start_all();
  void start(std::size_t number, const std::vector<std::string>& more = {},
             std::vector<std::string> environment = {});
  void kill(std::size_t number);    // SIGKILL, reaped
  int stop(std::size_t number);     // SIGTERM; the exit status
  Ended ended(std::size_t number);  // waits for the end
  Process& process(std::size_t number) { return *replicas_[number].process; }
  server::EtcdServers& etcd() { return etcd_; }
  std::vector<std::string> command(std::size_t number) const;  // that starts the replica
  std::string data(std::size_t number) const;
  const std::string& address(std::size_t number) const { return replicas_[number].address; }

  // The configuration that etcd has, as a line of text; empty: none.
  std::string configuration() const;
  // How many replicas are in sync; 0 if etcd does not answer.
  std::size_t in_sync_count() const;
  // Waits until so many replicas are in sync; EXPECTs it within three minutes.
  void wait_for_in_sync(std::size_t count);
  // Waits until a replica serves that is not `but`; its number. EXPECTs it within three minutes.
  std::size_t wait_for_primary(std::size_t but = ~std::size_t{0});
  // A client of that replica; an error if it does not serve.
  Result<Client> connect(std::size_t number,
                         std::chrono::milliseconds timeout = std::chrono::seconds(60)) const;
  // The same; throws if it does not serve, which ends the test as failed.
  Client client_of(std::size_t number) const;
  // A client of the primary, whichever it is.
  Client client();
  // A client that knows all replicas.
  Client client_of_all() const;
  // The log of a replica's process since its start.
  std::string log(std::size_t number);
  // The logs of all replicas.
  std::string logs();

 private:
  std::optional<server::GroupConfiguration> stored() const;  // nothing, too, if etcd is silent

  ReplicaGroup(std::vector<Host> hosts, std::vector<std::string> arguments,
               std::vector<std::string> program, const std::string& etcd,
               const std::string& of_etcd);

  struct Replica {
    Host host;
    std::string address;
    std::unique_ptr<Process> process;
  };
  ScratchDirectory directory_;
  server::EtcdServers etcd_;
  const SteadyClock clock_;
  const std::unique_ptr<server::ConfigurationStore> store_;
  std::vector<std::string> arguments_;
  std::string user_;  // of clients; empty: the replicas have no users
  std::string secret_;
  const std::vector<std::string> program_;
  std::vector<Replica> replicas_;
};

}  // namespace rkv::testing_support
