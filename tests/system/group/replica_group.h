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
#include "server/group/configuration_store.h"
#include "tests/server/group/etcd_servers.h"
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
  // Starts etcd and no replica. `arguments` are added to those of each replica. `program`: what
  // each replica runs, with its first arguments.
  explicit ReplicaGroup(std::size_t replicas, std::vector<std::string> arguments = {},
                        std::vector<std::string> program = {RKV_KVSERVER});

  // Starts all replicas, the first one alone until it serves, and waits until all are in sync.
  void start_all();
  void start(std::size_t number);
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
  // What a replica's process has logged since it was started.
  std::string log(std::size_t number);
  // What all replicas have logged.
  std::string logs();

 private:
  std::optional<server::GroupConfiguration> stored() const;  // nothing, too, if etcd is silent

  struct Replica {
    std::string address;
    std::unique_ptr<Process> process;
  };
  ScratchDirectory directory_;
  server::EtcdServers etcd_{1};
  const SteadyClock clock_;
  const std::unique_ptr<server::ConfigurationStore> store_;
  std::vector<std::string> arguments_;
  const std::vector<std::string> program_;
  std::vector<Replica> replicas_;
};

}  // namespace rkv::testing_support
