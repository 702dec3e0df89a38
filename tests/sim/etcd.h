// The etcd of a simulated run: one group's configuration as a linearizable register with revisions.
// Every host has its own connection, which can be cut. Messages take time, a few of them long, and
// some are lost. So a transaction can be applied long after its caller has given it up, also after
// a read that showed the old configuration, or never.
//
//   Etcd etcd(scheduler);
//   const auto store = etcd.connect(1);      // a ConfigurationStore, for the code under test
//   etcd.set_reachable(1, false);
//
// Invariants:
//  SIMETCD-1  The register keeps STORED-1 to STORED-3 of
//  server/group/configuration/configuration_store.h, and
//      promises no more. (Canaries break them.)
//  SIMETCD-2  What happens is a function of the scheduler's seed.
//
// Thread safety: none. The calls of a store block their fiber.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "server/group/configuration/configuration_store.h"
#include "tests/sim/network/scheduler.h"

namespace rkv::sim {

struct EtcdFaults {
  Nanos way = kNanosPerMs;  // maximum time of a message, in each direction
  Nanos long_way = 3 * kNanosPerSecond;
  std::uint64_t long_in = 0;      // one in this many messages takes up to long_way
  std::uint64_t lost_in = 0;      // one in this many messages is lost
  bool compares_nothing = false;  // canary: replace() stores whatever the revision is
  std::uint64_t stale_in = 0;     // canary: one in this many reads shows the configuration before
  std::uint64_t denies_in = 0;    // canary: one in this many unknown outcomes is said to be none
  bool refuses = false;           // changes: its space is used up
};

class Etcd {
 public:
  using Stored = server::ConfigurationStore::Stored;

  explicit Etcd(rdma::sim::Scheduler& scheduler) : scheduler_(scheduler) {}
  EtcdFaults& faults() { return faults_; }

  // The register as this host sees it. It must not outlive the Etcd.
  std::unique_ptr<server::ConfigurationStore> connect(std::size_t host);
  // While it is unreachable, messages from and to the host are lost, and calls fail at once or at
  // their deadlines.
  void set_reachable(std::size_t host, bool reachable);
  // Loses its data, as one whose disk was replaced: it begins with low revisions again.
  void lose_data();
  // A person stores this. Its revision is higher than any before.
  void put_back(const server::GroupConfiguration& configuration);

  const Stored& stored() const { return stored_; }

 private:
  friend class EtcdConnection;
  struct Call;

  Result<Stored> ask(std::size_t host, const Deadline& deadline, WriteOutcome unknown,
                     const std::function<void(const std::shared_ptr<Call>&)>& at_etcd);
  // Calls `arrive` when a message from or to the host arrives, if it does.
  void send(std::size_t host, std::function<void()> arrive);
  void answer(const std::shared_ptr<Call>& call, Result<Stored> result);
  Result<Stored> show();
  Result<Stored> compare_and_store(std::int64_t revision, const server::GroupConfiguration& next);

  rdma::sim::Scheduler& scheduler_;
  EtcdFaults faults_;
  std::set<std::size_t> cut_;  // hosts
  Stored stored_;
  Stored before_;
  std::int64_t highest_ = 0;  // revision
  std::uint64_t life_ = 0;    // how often it has lost its data; its connections end with that
  std::vector<std::shared_ptr<Call>> watches_;  // answered at the next change
};

}  // namespace rkv::sim
