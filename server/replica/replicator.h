// Replicator: a server's part in a replicated group. Its thread receives and sends, and asks
// Membership, Backup and Primary what to do; it keeps a backup's database up with the group, and
// tells the server when it is elected.
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
//  REPL-4  A tick is shown only if the lease was looked at after the clock was read for it, and
//      covers it (cluster rule T_AFTER_LOOK, tests/model).
//  REPL-5  When kGivenUp was shown, no tick is shown any more.
//
// Thread safety: any thread, except start, take_over, serve and stop: the owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/trust_times.h"
#include "rkv/durability.h"
#include "rkv/result.h"
#include "server/group/configuration_store.h"
#include "server/persistence/commit_log.h"
#include "server/persistence/logged_outcomes.h"
#include "server/persistence/replication_rounds.h"
#include "server/persistence/storage_engine.h"
#include "server/replica/group_status.h"
#include "server/replication/connection/group_secret.h"
#include "server/replication/lane/lane_transports.h"
#include "server/replication/replication_times.h"

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
    ReplicationTimes times{};
  };
  struct Parts {
    StorageEngine& engine;
    ConfigurationStore& store;
    const Clock& clock;
    std::function<std::uint64_t()> unix_ms;  // the wall clock; any thread
    LaneTransports lanes{};                  // must outlive stop(); none: all goes over TCP
  };
  // What is called on the replicator's thread, once the server serves.
  struct Serving {
    CommitLog& log;          // replicated
    std::uint32_t term = 0;  // its versions begin with this
    std::function<void()> marks_changed;
    std::function<bool()> disk_hangs;  // the log's disk: it does not answer
    // Shows clients up to when they may believe what they READ, and what is replicated.
    std::function<void(Nanos tick, Version replicated)> show;
    // Clients are refused from now on, and directed to this address. Does not block.
    std::function<void(const std::string& primary)> close;
    // Whether all requests that were begun before are answered.
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

  // Listens for other replicas and starts the threads. On failure `*problem` is a sentence: the
  // address cannot be used.
  Status start(std::string* problem);
  State state() const;
  // What people and alarms see of the group. Never nullptr, and some hundred milliseconds old; much
  // older if the replicator's thread is stuck.
  std::shared_ptr<const GroupStatus> status() const;
  // Ends the writing of a backup, and gives the storage for the writing of a primary. Blocks until
  // all is synced. REQUIRES: kElected.
  Result<Storage*> take_over();
  // What the writes of earlier primaries have answered. REQUIRES: take_over() has succeeded.
  std::shared_ptr<const LoggedOutcomes> outcomes() const;
  // Tells this group from others. REQUIRES: take_over() has succeeded.
  std::uint32_t group() const;
  // REQUIRES: take_over() has succeeded. What `serving` refers to must outlive stop().
  void serve(Serving serving);
  // Makes the replica of this name the primary (empty: any that is in sync). etcd is asked first,
  // which takes about three seconds at most if it does not answer. The hand-over begins
  // if `done` is called without an error; then state().is_handing_over, until it has failed, or the
  // phase is kEnded. Any thread; `done` is called on the replicator's thread.
  void hand_over(const std::string& name, const std::function<void(const Status&)>& done);
  // Takes a replica that is gone out of the group. `done` as above, when etcd has it or refuses.
  void remove(const std::string& name, const std::function<void(const Status&)>& done);
  // Ends the threads and connections. Blocks for about two seconds at most, and until the disk of a
  // backup has what it was given. Call it before the applier of a primary is stopped.
  Status stop();

  // ---- of a server that serves
  // The marks of the log have moved, by the applier. Does not block.
  void disk_moved();
  // A client waits until the disks of all in sync have `sequence`. Does not block.
  void request(Durability level, std::uint64_t sequence);
  // The group's time, which the other replicas know too; 0: not yet known. Keys expire by it.
  std::uint64_t latest_unix_ms() const;
  // The time at which a primary began its term: no earlier one is shown.
  std::uint64_t first_unix_ms() const;
  // Whether fewer than min_copies replicas are in sync, this primary among them.
  const std::atomic<bool>& lacks_copies() const;
  // What answers of workers may await.
  ReplicationRounds& rounds();

 private:
  class Impl;
  explicit Replicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rkv::server
