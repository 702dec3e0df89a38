// Server: owns and connects all parts - lock, database, device, store, workers, acceptors. The
// start order allows every failure to be reported before anything has changed. The stop order loses
// nothing that was accepted.
//
//   Server server(options, clock, open_transports);
//   if (const auto failure = server.start()) {
//     report(failure->sentence);
//     return failure->exit_code;
//   }
//   while (no signal within server.tick_every()) {
//     server.tick();
//     if (server.ended()) break;
//   }
//   return server.stop();
//
// Start order:
//  0. users file (read, and closed again)
//  1. lock file (the first descriptor that the server opens)
//  2. port of --metrics
//  3. database
//  4. device
//  5. listener; from here on clients are refused as "loading"
//  6. memory, the workers' buffers
//  7. boot number
//  8. applier, workers
//  9. admit
// Records are loaded from disk afterwards, while clients are served.
//
// A replica of a group (--etcd) starts up to step 5, and follows the group's primary. tick() goes
// on with step 6 when the replica is elected. The version numbers of step 7 begin with the term.
//
// Thread safety: one owner.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "rdma/choose.h"
#include "server/background/counter_flusher.h"
#include "server/background/store_maintenance.h"
#include "server/clients/network/endpoints.h"
#include "server/data_directory.h"
#include "server/disk_work.h"
#include "server/group_member.h"
#include "server/log/commit_log.h"
#include "server/memory/memory.h"
#include "server/monitor/disk_watch.h"
#include "server/monitor/monitor.h"
#include "server/program/options.h"
#include "server/program/wall_clock.h"
#include "server/request/outcome_archive.h"
#include "server/store/store.h"
#include "server/user_access.h"

namespace rocksdb {
class Env;
}

namespace rkv::server {

class Server {
 public:
  using OpenTransports = std::function<Result<rdma::ServerTransports>(const Options&)>;
  Server(Options options, const Clock& clock, OpenTransports open_transports);
  ~Server();  // calls stop() if the owner has not
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Files and clock of the database, for start(). Without this call the system's are used. Tests
  // pass a disk that forgets.
  void use_database_env(std::shared_ptr<rocksdb::Env> env) { database_env_ = std::move(env); }
  // start() calls it just before the first step that makes a promise to a client.
  void before_serving(std::function<void()> call) { before_serving_ = std::move(call); }
  // Blocks until clients are admitted, which takes as long as opening the database. In a group,
  // until the replica follows.
  std::optional<Failure> start();
  bool ready() const { return ready_; }
  // How often tick() is to be called, in nanoseconds.
  Nanos tick_every() const;
  // Call every tick_every(). Advances the tick by which clients see that the server is alive. When
  // a replica is elected, blocks until clients are admitted.
  void tick();
  // Why a replica has ended its part in the group; nullopt: it has not. Then call stop().
  using Ended = GroupMember::Ended;
  std::optional<Ended> ended() const { return group_ ? group_->ended() : std::nullopt; }
  // The primary of a group begins to hand over to another replica: go on with tick() until it is
  // not leaving any more, or has ended. False: there is nothing, or nobody, to hand over to. Blocks
  // as GroupMember::begin_leaving().
  bool begin_leaving() { return group_ && group_->begin_leaving(); }
  bool is_leaving() const { return group_ && group_->is_leaving(); }
  // Reads the users file again (SIGHUP). Call it after start().
  void read_users_again() { access_.read_again(); }
  // Ends all connections, saves all accepted writes and closes the database. Blocks.
  std::optional<Failure> stop();

  ServerFacts facts() const;
  std::uint16_t port() const { return endpoints_ ? endpoints_->port() : std::uint16_t{0}; }

 private:
  std::optional<Failure> start_parts();
  std::optional<Failure> check_threads() const;
  std::optional<Failure> load_users();
  bool has_disk() const { return !options_.data_dir.empty(); }
  std::optional<Failure> begin_without_disk();
  std::optional<Failure> start_monitor();
  std::optional<Failure> open_data();
  std::optional<Failure> create_memory(std::unique_ptr<StoreMemory>* made) const;
  std::optional<Failure> open_network();
  std::optional<Failure> join_group();
  std::optional<Failure> lead(std::uint32_t term);
  std::optional<Failure> open_log();
  void disk_moved();
  void tick_memory();
  void replicate();
  std::optional<Failure> create_store();
  std::optional<Failure> create_workers();
  void start_maintenance();
  std::optional<Failure> begin_serving();
  std::uint32_t store_number() const;
  void publish_marks();
  std::optional<Failure> save();
  std::optional<Failure> check_memory();
  void follow_wall_clock();
  void follow_group_time();
  LogFacts log_facts() const;
  std::string_view who_may_connect() const;
  MemoryFacts memory_facts() const;

  const Options options_;
  const Clock& clock_;
  const OpenTransports open_transports_;
  std::shared_ptr<rocksdb::Env> database_env_;
  std::function<void()> before_serving_;
  const Nanos started_;

  // In order of creation; destroyed in reverse order.
  DataDirectory data_;
  UserAccess access_;
  std::unique_ptr<GroupMember> group_;  // nullptr: in no group
  Replicator* replicator_ = nullptr;    // of group_
  StorageEngine* engine_ = nullptr;     // of data_; nullptr: memory only
  Storage* storage_ = nullptr;          // what the applier writes to
  std::uint32_t boot_ = 0;
  std::optional<WallClock> wall_;  // used by the main thread
  std::unique_ptr<CommitLog> log_;
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<DiskWork> disk_;  // nullptr: memory only
  std::unique_ptr<CounterFlusher> counter_flusher_;
  std::unique_ptr<OutcomeArchive> outcomes_;
  std::shared_ptr<const LoggedOutcomes> earlier_outcomes_;  // nullptr: in no group
  std::unique_ptr<Endpoints> endpoints_;
  std::unique_ptr<StoreMaintenance> maintenance_;
  DiskWatch disk_watch_;  // used by the main thread
  bool ready_ = false;
  bool stopped_ = false;
  Monitor monitor_;  // last: it reads the other members, so it is destroyed first
};

}  // namespace rkv::server
