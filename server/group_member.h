// GroupMember: a server's part in a replicated group (--etcd), from joining it to leaving it.
//
//   GroupMember member(parts);
//   if (auto failure = member.join()) return failure;
//   while (!member.ended()) member.take_turn();
//
// Thread safety: the main thread. The result of change_group() may be called in any thread;
// Replicator says what holds for replicator().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "server/clients/network/endpoints.h"
#include "server/data_directory.h"
#include "server/group/configuration/configuration_store.h"
#include "server/group/replica/replicator.h"
#include "server/monitor/fitness.h"
#include "server/monitor/group_watch.h"
#include "server/program/failure.h"
#include "server/program/options.h"
#include "server/request/admin_requests.h"
#include "server/user_access.h"

namespace rkv::server {

class GroupMember {
 public:
  // All must outlive it.
  struct Parts {
    const Options& options;
    const Clock& clock;
    DataDirectory& data;
    Endpoints& endpoints;
    UserAccess& access;
    // Called by take_turn() when this replica is elected: serve clients, then call serves().
    std::function<std::optional<Failure>(std::uint32_t term)> become_primary;
  };
  // Why the replica has ended its part in the group.
  struct Ended {
    Failure failure;
    bool may_start_again = false;  // a new process would be a backup
    bool has_copy = false;         // of the primary's database, to be installed
  };

  explicit GroupMember(Parts parts) : parts_(std::move(parts)) {}

  // Listens for the other replicas and starts the replicator's threads. Blocks on the disk and for
  // names to be resolved.
  std::optional<Failure> join();
  // Follows the group. Refuses clients, and directs them to the primary. When this replica is
  // elected, blocks until clients are admitted. Call it every tick_every() of the server. REQUIRES:
  // joined.
  void take_turn();
  // The server serves clients as the primary. REQUIRES: its workers run.
  void serves();
  const std::optional<Ended>& ended() const { return ended_; }
  // Ends what join() has started, also if that failed half-way. As Replicator::stop().
  Status stop() { return replicator_ ? replicator_->stop() : Status{}; }

  // Begins to hand over to another replica. False: there is none. Blocks while etcd is asked: for
  // milliseconds, or about 3 s if it does not answer.
  bool begin_leaving();
  bool is_leaving() const;
  // A change of the primary must be short, so a replica ticks more often during one.
  bool may_change() const { return !is_serving_ || leaving_until_ != 0; }

  // Returns what begins an administrator's change of the group, for workers.
  AdminRequests::ChangeGroup change_group();
  Replicator& replicator() { return *replicator_; }
  const Replicator& replicator() const { return *replicator_; }

 private:
  std::optional<Failure> create_replicator();
  Fitness::Look look_at_threads() const;
  void follow();
  void become_primary(std::uint32_t term);

  const Parts parts_;
  std::unique_ptr<ConfigurationStore> configurations_;
  std::atomic<std::uint64_t> main_turns_{0};
  std::atomic<bool> is_becoming_primary_{false};  // which takes long; then it takes no turns
  std::atomic<bool> has_workers_{false};
  Fitness fitness_{[this] { return look_at_threads(); }};  // used by the replicator's thread
  GroupWatch watch_;
  std::string followed_;  // the primary that was logged
  bool is_serving_ = false;
  Nanos leaving_until_ = 0;  // 0: not leaving
  std::optional<Ended> ended_;
  std::unique_ptr<Replicator> replicator_;  // last: its thread uses the others
};

}  // namespace rkv::server
