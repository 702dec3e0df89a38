// Replicator: a server's part in a replicated group. Its thread receives and sends, and asks
// Membership, Backup and Primary what to do. It keeps a backup's database up to date with the
// group, and tells the server when it is elected.
//
//   RKV_ASSIGN_OR_RETURN(auto replicator, Replicator::create(options, parts));
//   replicator->start(&problem);
//   while (replicator->state().phase == Replicator::Phase::kFollowing) ...   // clients are refused
//   // kElected: everything that the group has answered is in the database
//   auto& storage = *replicator->take_over();          // for the server's applier
//   ... make the store, with versions of state().term ...
//   replicator->serve({.log = *log, ...});             // from here on writes are replicated
//   // kEnded: the process must end, and may start again as a backup
//
// Invariants:
//  REPL-1  The database's group is synced before anything is answered or any change is wanted.
//  REPL-2  Entries go to the log of a replica, and from there to others, only as whole, checked
//      blocks.
//  REPL-3  The commit log's marks never pass Primary::marks().
//  REPL-4  A tick is shown only if the lease was looked at after the clock was read for the tick,
//      and covers it (cluster rule T_AFTER_LOOK, tests/model).
//  REPL-5  When kGivenUp was shown, no tick is shown any more.
//
// Thread safety: any thread, except start, take_over, serve and stop: the owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/auth/revoked_secret.h"
#include "common/clock.h"
#include "common/trust_times.h"
#include "rkv/durability.h"
#include "rkv/result.h"
#include "server/group/configuration/configuration_store.h"
#include "server/group/connection/group_secret.h"
#include "server/group/lane/lane_transports.h"
#include "server/group/replica/group_status.h"
#include "server/group/rules/group_time.h"
#include "server/group/rules/replication_times.h"
#include "server/log/commit_log.h"
#include "server/log/logged_outcomes.h"
#include "server/log/replication_rounds.h"
#include "server/persistence/storage_engine.h"

namespace rkv::server {

class Replicator {
 public:
  struct Options {
    std::string group;    // its name in etcd, for reports
    std::string name;     // of this replica in its group
    std::string address;  // HOST:PORT for clients; replicas use the port above it
    std::string data_dir;
    GroupSecret secret = GroupSecret::well_known();
    std::size_t queue_bytes = std::size_t{64} << 20;
    int sync_interval_ms = 1000;
    std::size_t min_copies = 1;  // with fewer replicas in sync, writes are refused
    bool may_found = false;      // the group, if etcd has none of its name
    // The last process that used the data directory is known to have ended.
    bool last_has_ended = false;
    // The only replica in sync continues to serve if etcd does not answer.
    bool alone_without_store = false;
    ReplicationTimes times{};
  };
  struct Parts {
    StorageEngine& engine;
    ConfigurationStore& store;
    const Clock& clock;
    std::function<GroupClock::Reading()> read_clocks;  // any thread
    // Whether the server serves clients or could do so. Called in each turn, on the replicator's
    // thread: must not block.
    std::function<bool()> may_lead = [] { return true; };
    LaneTransports lanes{};  // must outlive stop(); none: all goes over TCP
  };
  // Functions that are called on the replicator's thread once the server serves.
  struct Serving {
    CommitLog& log;          // replicated
    std::uint32_t term = 0;  // its versions begin with this
    std::function<void()> marks_changed;
    std::function<bool()> disk_hangs;  // whether the log's disk does not answer
    // Shows clients until when they may believe what they READ, and up to which version it is
    // replicated.
    std::function<void(Nanos tick, Version replicated)> show;
    // Clients are refused from now on, and directed to this address. Does not block.
    std::function<void(const std::string& primary)> close;
    // Whether all requests that were begun before close() are answered.
    std::function<bool()> is_quiet;
  };
  // The tick that is shown when clients must not believe this server any more, nor wait for it.
  static constexpr Nanos kGivenUp = static_cast<Nanos>(kGivenUpTick);
  enum class Phase : std::uint8_t {
    kFollowing,  // a backup, or not known yet
    kElected,    // the primary: take_over() and serve() are due
    kServing,
    kEnded,  // see `why`
  };
  struct State {
    Phase phase = Phase::kFollowing;
    std::string primary;     // its address for clients; empty: not known
    std::uint32_t term = 0;  // in which this replica was elected; 0: it was not
    std::string why;         // kEnded
    bool may_start_again = true;
    // A copy of the primary's database was received: install_copy() is due before the next start.
    bool has_copy = false;
    bool is_handing_over = false;
  };
  // kCorrupt: what the database notes about its group is damaged.
  static Result<std::unique_ptr<Replicator>> create(Options options, const Parts& parts);
  ~Replicator();  // stop()
  Replicator(const Replicator&) = delete;
  Replicator& operator=(const Replicator&) = delete;

  // Listens for other replicas and starts the threads. If the address cannot be used, `*problem` is
  // a sentence that says why.
  Status start(std::string* problem);
  State state() const;
  // The group's status for people and alarms. Never nullptr. Some hundred milliseconds old, or much
  // older if the replicator's thread is stuck.
  std::shared_ptr<const GroupStatus> status() const;
  // Ends the backup's writing, and returns the storage for the primary's writing. Blocks until all
  // is synced. REQUIRES: kElected.
  Result<Storage*> take_over();
  // The outcomes of writes under earlier primaries. REQUIRES: take_over() has succeeded.
  std::shared_ptr<const LoggedOutcomes> outcomes() const;
  // Tells this group from others. REQUIRES: take_over() has succeeded.
  std::uint32_t group() const;
  // REQUIRES: take_over() has succeeded. What `serving` refers to must outlive stop().
  void serve(Serving serving);
  // Makes the replica of this name the primary (empty: any that is in sync). etcd is asked first,
  // which takes about three seconds at most if it does not answer. If `done` is called without an
  // error, the hand-over has begun. Then state().is_handing_over is true until the hand-over has
  // failed, or the phase is kEnded. Any thread; `done` is called on the replicator's thread.
  void hand_over(const std::string& name, const std::function<void(const Status&)>& done);
  // Removes a replica that is gone from the group. `done` as above, when etcd has stored or refused
  // it.
  void remove(const std::string& name, const std::function<void(const Status&)>& done);
  // Shuts secrets of users out of the group. `done` as above, when etcd has stored that, or with
  // the reason why not (GroupRevocations). `done` is not called if this replica ends its part in
  // the group before.
  void revoke(std::vector<RevokedSecret> secrets, const std::function<void(const Status&)>& done);
  // The secrets that are shut out of the group, as this replica has read them last. Never nullptr;
  // another object after each change. If the phase is kElected, it has all that was revoked before
  // this term.
  std::shared_ptr<const std::vector<RevokedSecret>> revoked() const;
  // Ends the threads and connections. Blocks for about two seconds at most, or
  // LaneCaller::kConnectMs if a lane is being made. It also blocks until the disk of a backup has
  // all that it was given. Call it before the applier of a primary is stopped.
  Status stop();

  // ---- of a server that serves

  // Call it when the applier has moved the marks of the log. Does not block.
  void disk_moved();
  // A client waits until the disks of all in sync have `sequence`. Does not block.
  void request(Durability level, std::uint64_t sequence);
  // The group's time, by which keys expire. REQUIRES: the phase has been kElected.
  TimeLine time() const;
  // Whether fewer than min_copies replicas are in sync, counting this primary.
  const std::atomic<bool>& lacks_copies() const;
  // The rounds for which answers of workers may wait.
  ReplicationRounds& rounds();

 private:
  class Impl;
  explicit Replicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rkv::server
