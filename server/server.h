// The server put together: lock, disk, device, store, workers, acceptor - started in the order that
// lets every failure be told before anything has changed, and stopped so that nothing accepted is
// lost.
//
//   Server server(options, clock, open_transport);
//   if (const auto failure = server.start()) { tell(failure->sentence); return failure->exit_code;
//   } while (no signal within 100 ms) server.tick(); return server.stop();
//
// Order of the start: lock file (the first descriptor that the server opens) - database - device -
// listener (clients are told "loading" from here on) - memory, workers' buffers - boot counter -
// applier, workers - admit. Records come from the disk afterwards, while clients are served.
//
// Thread safety: one owner.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/choose.h"
#include "server/backups.h"
#include "server/loads.h"
#include "server/lock_file.h"
#include "server/memory.h"
#include "server/monitor.h"
#include "server/networks.h"
#include "server/options.h"
#include "server/persistence/applier.h"
#include "server/persistence/commit_log.h"
#include "server/persistence/engine.h"
#include "server/scans.h"
#include "server/stepper.h"
#include "server/store.h"
#include "server/sweeper.h"
#include "server/wall_clock.h"
#include "server/warm_up.h"

namespace rkv::server {

struct Failure {
  ExitCode exit_code = kExitOther;
  std::string sentence;  // what is wrong and what to do
};

class Server {
 public:
  using OpenTransports = std::function<Result<rdma::ServerTransports>(const Options&)>;
  Server(Options options, const Clock& clock, OpenTransports open_transports);
  ~Server();  // stops, if that was not done
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Called by start() when nothing has been promised to anybody yet and the next step is to do so.
  void before_serving(std::function<void()> call) { before_serving_ = std::move(call); }
  // Blocks until clients are admitted, which takes as long as opening the database does.
  std::optional<Failure> start();
  bool ready() const { return ready_; }
  // Every 100 ms: shows clients that the server lives.
  void tick();
  // Ends connections, saves everything, closes.
  std::optional<Failure> stop();

  ServerFacts facts() const;
  std::uint16_t port() const { return networks_ ? networks_->port() : std::uint16_t{0}; }

 private:
  std::optional<Failure> start_parts();
  std::optional<Failure> check_threads() const;
  std::optional<Failure> lock_data();
  std::optional<Failure> start_monitor();
  std::optional<Failure> open_data();
  std::optional<Failure> open_backups();
  void make_scans();
  std::optional<Failure> open_network();
  std::optional<Failure> create_store();
  std::optional<Failure> create_workers();
  DiskReads disk_reads() const;
  void create_loads();
  void start_loading();
  void start_evicting();
  Nanos make_room();
  std::optional<Failure> begin_serving();
  void start_growing();
  void start_expiring();
  Nanos grow();
  void publish_marks();
  std::optional<Failure> check_memory();
  void follow_wall_clock();
  void look_at_disk();
  LogFacts log_facts() const;
  MemoryFacts memory_facts() const;

  const Options options_;
  const Clock& clock_;
  const OpenTransports open_transports_;
  std::function<void()> before_serving_;
  const Nanos started_;

  // In the order of creation; destroyed the other way round.
  std::optional<LockFile> lock_;
  std::unique_ptr<Engine> engine_;  // nullptr: memory only
  std::uint32_t boot_ = 0;
  std::optional<WallClock> wall_;  // the main thread's
  std::unique_ptr<CommitLog> log_;
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Applier> applier_;
  std::unique_ptr<Backups> backups_;  // nullptr: none are made
  std::unique_ptr<Sweeper> sweeper_;
  std::unique_ptr<Scans> scans_;     // nullptr: memory only
  std::unique_ptr<Loads> loads_;     // nullptr: all records are in memory
  std::unique_ptr<WarmUp> warm_up_;  // likewise
  std::unique_ptr<Networks> networks_;
  std::unique_ptr<Stepper> grower_;
  std::unique_ptr<Stepper> expirer_;
  std::unique_ptr<Stepper> evictor_;
  std::uint64_t estimated_records_ = 0;    // on disk at the start
  bool told_that_it_cannot_grow_ = false;  // the grower's
  bool disk_hangs_ = false;                // the main thread's, for the log
  bool ready_ = false;
  bool stopped_ = false;
  Monitor monitor_;  // last: nobody looks at what is being destroyed
};

}  // namespace rkv::server
