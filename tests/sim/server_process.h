// A simulated server process, from start to crash or stop. It runs the product's parts (store,
// commit log, applier, workers, acceptor) on fibers instead of threads.
//
//   ServerProcess server(fabric, disk, options);  // serves, and loads meanwhile
//   server.crash();  or  server.stop();
//   server.join();   // its fibers have ended
//
// Thread safety: none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/background/counter_flusher.h"
#include "server/background/disk_fetcher.h"
#include "server/background/scans.h"
#include "server/background/store_maintenance.h"
#include "server/background/warm_up.h"
#include "server/clients/network/acceptor.h"
#include "server/log/commit_log.h"
#include "server/memory/memory.h"
#include "server/persistence/applier.h"
#include "server/program/wall_clock.h"
#include "server/request/worker.h"
#include "server/store/cells.h"
#include "server/store/store.h"
#include "tests/sim/broken_archive.h"
#include "tests/sim/disk.h"
#include "tests/sim/fiber_background.h"
#include "tests/sim/network/fabric.h"
#include "tests/sim/wall.h"

namespace rkv::sim {

using rdma::sim::Fabric;
using rdma::sim::WaitPoint;

struct ServerOptions {
  std::uint32_t boot = 2;
  std::uint64_t hash_seed = 1;
  std::uint32_t index_segments = 1;      // at the start; two groups each
  std::uint32_t max_index_segments = 1;  // after growth
  // 1 MiB of data extents in all, so that records are evicted and loaded again.
  bool tight = false;
  bool expires = true;  // false: a canary
  // The wall clock is wrong by up to this much, by another amount at each start.
  std::uint64_t clock_step_ms = 0;
  enum class Follows : std::uint8_t {
    kWallClock,  // like the product
    kAtOnce,     // a canary: follows every step
    kNever,      // a canary
  };
  Follows follows = Follows::kWallClock;
  std::uint64_t load_rate = 0;  // bytes per second of the warm-up; 0: unlimited
  std::uint32_t workers = 1;
  std::uint32_t clients = 8;
  std::uint32_t cells = 0;     // cells for one-sided counters; 0: no cells and no CounterFlusher
  bool flush_sweeps = true;    // false: a canary, workers have no CounterFlusher
  bool seals_blindly = false;  // a canary: swaps of cells do not compare
  Asked asked = Asked::kRight;
  server::ApplierOptions applier{};
};

class ServerProcess {
 public:
  static constexpr const char* kAddress = "server:7471";
  static constexpr int kWorkers = 1;  // the group of fibers that lock group pairs, including the
                                      // grower

  // Serves when the constructor returns; the content of the disk is loaded meanwhile and
  // afterwards.
  ServerProcess(std::shared_ptr<Fabric> fabric, Disk& disk, const Wall& wall,
                const ServerOptions& options);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Dies at this instant: nothing that its fibers still do has any effect outside.
  void crash(Disk::End end);
  // Stops in good order: takes no more requests and saves everything. False if saving failed.
  bool stop();
  void join();
  // When it died, or lost its network.
  Nanos gone_at() const { return gone_at_; }

  const server::StoreMemory& memory() const { return *memory_; }
  // REQUIRES: its fibers have ended; takes all locks.
  server::StoreStats stats() const { return store_->stats(); }
  server::CommitLog& log() { return *log_; }

 private:
  void create_cells(const ServerOptions& options);
  void create_workers(const ServerOptions& options);
  void serve(const ServerOptions& options);
  void run_worker(server::Worker& worker);
  void run_applier();
  void run_acceptor();
  server::WallClock::Look look_at_wall() const;
  void follow_wall_clock();
  void start_maintenance(const ServerOptions& options);
  server::DiskReads disk_reads();
  void create_background();
  void start_background(const ServerOptions& options);
  void stop_background();
  bool end_counters(const Deadline& patience);
  std::unique_ptr<server::BackgroundThread> background();
  void spawn(const std::string& name, void (ServerProcess::*body)(), int group = 0);
  void ended();
  void wait_until(const std::function<bool()>& done, const Deadline& deadline);
  void publish_marks();
  void request_write(std::uint64_t sequence);
  void request_sync();
  void tell_workers();

  std::shared_ptr<Fabric> fabric_;
  Disk& disk_;
  const std::uint32_t boot_;
  const Wall& wall_;
  const std::int64_t wall_error_ms_;
  const ServerOptions::Follows follows_;
  server::WallClock wall_clock_;
  // In the order of creation; destroyed in reverse order.
  DiskStorage storage_;
  std::unique_ptr<server::CommitLog> log_;
  std::unique_ptr<rdma::Transport> transport_;
  std::unique_ptr<rdma::Listener> listener_;
  std::unique_ptr<rdma::Region> hints_;
  std::unique_ptr<rdma::Region> cell_memory_;
  std::unique_ptr<server::Cells> cells_;
  std::uint32_t cells_number_ = server::RequestHandler::kNoNetwork;  // the store's number for them
  std::unique_ptr<server::StoreMemory> memory_;
  std::unique_ptr<server::Store> store_;
  std::unique_ptr<server::CounterFlusher> counter_flusher_;  // nullptr without cells
  std::unique_ptr<server::Scans> scans_;
  std::unique_ptr<server::DiskFetcher> disk_fetcher_;
  std::unique_ptr<server::WarmUp> warm_up_;
  std::unique_ptr<server::StoreMaintenance> maintenance_;
  std::unique_ptr<server::Applier> applier_;
  std::unique_ptr<server::OutcomeArchive> outcomes_;
  std::vector<std::unique_ptr<server::Worker>> workers_;
  std::unique_ptr<server::Acceptor> acceptor_;
  bool stopping_ = false;
  bool applier_stopping_ = false;
  Nanos gone_at_ = 0;
  int running_ = 0;
  WaitPoint joined_;
  WaitPoint applier_point_;
};

}  // namespace rkv::sim
