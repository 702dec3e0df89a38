#include "tests/sim/server_process.h"

#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/random.h"
#include "tests/sim/slow_atomics.h"

namespace rkv::sim {

namespace {
constexpr std::size_t kCommitLogBytes = std::size_t{1} << 20;
constexpr std::int64_t kTickMs = 100;
constexpr std::size_t kEndedSessions = 10'000;  // so many that none is forgotten
constexpr Nanos kLonger = 3'600'000 * kNanosPerMs;

// A canary: expired records stay.
class WithoutExpiry final : public FiberBackground {
 public:
  using FiberBackground::FiberBackground;
  void start(const char* name, std::function<void()> body) override {
    if (std::string_view(name) != "rkv-expire") FiberBackground::start(name, std::move(body));
  }
};

template <class T>
T need(Result<T> result) {
  RKV_CHECK(result.has_value(), "a simulated server cannot be made");
  return std::move(*result);
}
}  // namespace

ServerProcess::ServerProcess(std::shared_ptr<Fabric> fabric, Disk& disk, const Wall& wall,
                             const ServerOptions& options)
    : fabric_(std::move(fabric)),
      disk_(disk),
      boot_(options.boot),
      wall_(wall),
      wall_error_ms_(fabric_->scheduler().up_to(static_cast<Nanos>(options.clock_step_ms))),
      follows_(options.follows),
      wall_clock_(look_at_wall()),
      storage_(disk),
      log_(need(server::CommitLog::create(kCommitLogBytes))),
      transport_(rdma::sim::open_sim(fabric_, "server")),
      listener_(need(transport_->listen(kAddress))) {
  acceptor_ = std::make_unique<server::Acceptor>(*listener_, fabric_->scheduler());
  spawn("acceptor", &ServerProcess::run_acceptor);  // answers clients with "loading"
  const server::MemoryOptions layout{.memory_bytes = server::kMinMemoryBytes,
                                     .epoch = random_from_kernel(),
                                     .hash_seed = options.hash_seed,
                                     .groups_per_segment = 2,
                                     .initial_segments = options.index_segments,
                                     .max_segments = options.max_index_segments,
                                     .index_extent_bytes = 2 * 2 * kGroupBytes,
                                     .data_extent_bytes = std::size_t{1} << 20,
                                     // Leaves no space for a second data extent.
                                     .index_growth = options.tight ? 14U << 10 : 0U};
  memory_ = need(server::StoreMemory::create(layout, [this](std::size_t bytes) {
    return transport_->allocate(bytes, rdma::Access::kRemoteRead);
  }));
  store_ = std::make_unique<server::Store>(*memory_, *log_, fabric_->scheduler(), boot_,
                                           wall_clock_.unix_ms_at_0());
  hints_ = need(transport_->allocate(kHintWords * 8, rdma::Access::kRemoteReadAtomic));
  store_->records().add_hint_words(reinterpret_cast<const std::uint64_t*>(hints_->bytes().data()));
  create_cells(options);
  create_background();
  create_workers(options);
  fabric_->scheduler().sleep(fabric_->scheduler().up_to(kNanosPerMs));
  serve(options);
}

ServerProcess::~ServerProcess() {
  RKV_CHECK(running_ == 0, "a simulated server is destroyed while it runs");
  workers_.clear();  // also discards unfinished writes
  const std::string wrong = store_->check_at_rest();
  RKV_CHECK(wrong.empty(), wrong.c_str());
}

// Like Endpoints::create_cells.
void ServerProcess::create_cells(const ServerOptions& options) {
  if (options.cells == 0) return;
  rdma::sim::Scheduler& scheduler = fabric_->scheduler();
  cell_memory_ = need(transport_->allocate(options.cells * 8, rdma::Access::kRemoteReadAtomic));
  auto atomics = std::make_unique<SlowAtomics>(need(transport_->create_atomics(*cell_memory_)),
                                               scheduler, options.seals_blindly);
  cells_ = need(server::Cells::create(std::move(atomics), *cell_memory_, options.cells));
  cells_number_ = store_->counter_cells().add_network(*cells_);
  counter_flusher_ = std::make_unique<server::CounterFlusher>(
      *store_, scheduler, [this] { tell_workers(); }, background());
}

void ServerProcess::create_workers(const ServerOptions& options) {
  outcomes_ = std::make_unique<BrokenArchive>(fabric_->scheduler(), kEndedSessions, options.asked);
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    workers_.push_back(need(server::Worker::create(
        {.transport = *transport_,
         .store = *store_,
         .log = *log_,
         .clock = fabric_->scheduler(),
         .boot = boot_,
         .stats = [] { return std::string("{}"); },
         .make_durable =
             [this](Durability level, std::uint64_t sequence) {
               applier_->request(level, sequence);
               fabric_->scheduler().notify(applier_point_);
             },
         .wait_until = [this](const auto& done,
                              const Deadline& deadline) { wait_until(done, deadline); },
         .network = cells_number_,
         .counter_flusher = options.flush_sweeps ? counter_flusher_.get() : nullptr,
         .scans = scans_.get(),
         .disk_fetcher = disk_fetcher_.get(),
         .outcomes = outcomes_.get()},
        {.clients = options.clients})));
  }
}

void ServerProcess::serve(const ServerOptions& options) {
  publish_marks();
  applier_ = std::make_unique<server::Applier>(*log_, storage_, fabric_->scheduler(),
                                               options.applier, [this] {
                                                 publish_marks();
                                                 tell_workers();
                                                 scans_->marks_changed();
                                                 disk_fetcher_->marks_changed();
                                               });
  spawn("applier", &ServerProcess::run_applier);
  start_background(options);
  std::vector<server::Worker*> workers;
  for (const auto& worker : workers_) {
    workers.push_back(worker.get());
    ++running_;
    fabric_->scheduler().spawn(
        "worker",
        [this, each = worker.get()] {
          run_worker(*each);
          ended();
        },
        kWorkers);
  }
  const rdma::Region& root = memory_->root();
  RemoteWindow counters{};
  if (cells_ != nullptr) {
    counters = {.address = cell_memory_->address(),
                .remote_key = cell_memory_->remote_key(),
                .length = options.cells * 8};
  }
  acceptor_->admit({.workers = workers,
                    .all_workers = workers,
                    .epoch = memory_->epoch(),
                    .root = {.address = root.address(),
                             .remote_key = root.remote_key(),
                             .length = static_cast<std::uint32_t>(root.bytes().size())},
                    .hints = {.address = hints_->address(),
                              .remote_key = hints_->remote_key(),
                              .length = kHintWords * 8},
                    .counters = counters,
                    .max_clients = options.clients});
}

// Creates the objects that workers refer to.
void ServerProcess::create_background() {
  scans_ = std::make_unique<server::Scans>(server::Scans::Parts{
      .log = *log_,
      .sweep =
          [this] {
            return store_->counter_cells().in_use() ? store_->counter_cells().sweep() : Status{};
          },
      .request_write = [this](std::uint64_t n) { request_write(n); },
      .read = [this](const KeyRange& range,
                     const auto& visit) { return storage_.read_range(range, visit); },
      .has_expired =
          [this](const RecordFields& record) {
            return store_->expiry_clock().has_expired(record.expiry_ms, record.version);
          },
      .finished = [this] { tell_workers(); },
      .make_background = [this] { return background(); }});
  store_->disk().begin_loading();
  disk_fetcher_ = std::make_unique<server::DiskFetcher>(
      server::DiskFetcher::Parts{.store = *store_,
                                 .disk = disk_reads(),
                                 .request_write = [this](std::uint64_t n) { request_write(n); },
                                 .finished = [this] { tell_workers(); },
                                 .threads = 2,
                                 .make_background = [this] { return background(); }});
}

// Starts the work beside requests, as Server and DiskWork do.
void ServerProcess::start_background(const ServerOptions& options) {
  const Clock& clock = fabric_->scheduler();
  start_maintenance(options);
  if (counter_flusher_ != nullptr) {
    store_->counter_cells().on_first_cell([this] { counter_flusher_->call(); });
    counter_flusher_->start();
  }
  scans_->start();
  disk_fetcher_->start();
  warm_up_ = std::make_unique<server::WarmUp>(
      server::WarmUp::Parts{.store = *store_,
                            .disk = disk_reads(),
                            .clock = clock,
                            .request_write = [this](std::uint64_t n) { request_write(n); },
                            .bytes_per_second = options.load_rate,
                            .make_background = [this] { return background(); }});
  warm_up_->start();
}

void ServerProcess::start_maintenance(const ServerOptions& options) {
  maintenance_ = std::make_unique<server::StoreMaintenance>(server::StoreMaintenance::Parts{
      .store = *store_,
      .clock = fabric_->scheduler(),
      .room_made = [this] { disk_fetcher_->room_made(); },
      .request_sync = [this] { request_sync(); },
      .make_background = [this, &options]() -> std::unique_ptr<server::BackgroundThread> {
        if (options.expires) return background();
        return std::make_unique<WithoutExpiry>(fabric_->scheduler(), kWorkers);
      }});
  maintenance_->start();
}

void ServerProcess::stop_background() {
  warm_up_->stop();
  disk_fetcher_->stop();
  maintenance_->stop();
  if (counter_flusher_ != nullptr) counter_flusher_->stop();
  scans_->stop();
}

std::unique_ptr<server::BackgroundThread> ServerProcess::background() {
  return std::make_unique<FiberBackground>(fabric_->scheduler(), kWorkers);
}

server::DiskReads ServerProcess::disk_reads() {
  return {.log = *log_,
          .read = [this](Bytes key, const auto& visit) { return storage_.read(key, visit); },
          .read_from = [this](Bytes first,
                              const auto& visit) { return storage_.read_from(first, visit); },
          .reopened = [this] { return storage_.reopened(); }};
}

void ServerProcess::request_write(std::uint64_t sequence) {
  applier_->request_write(sequence);
  fabric_->scheduler().notify(applier_point_);
}

void ServerProcess::request_sync() {
  applier_->request_sync(log_->last_begun());
  fabric_->scheduler().notify(applier_point_);
}

void ServerProcess::tell_workers() {
  for (const auto& worker : workers_)
    worker->wake_for_answers();
}

void ServerProcess::spawn(const std::string& name, void (ServerProcess::*body)(), int group) {
  ++running_;
  fabric_->scheduler().spawn(
      name,
      [this, body] {
        (this->*body)();
        ended();
      },
      group);
}

void ServerProcess::ended() {
  if (--running_ == 0) fabric_->scheduler().notify(joined_);
}

void ServerProcess::run_worker(server::Worker& worker) {
  while (!stopping_) {
    if (worker.poll_once() == 0) {
      worker.queue().wait(Deadline::after_ms(fabric_->scheduler(), 1000));
    }
  }
}

void ServerProcess::run_applier() {
  rdma::sim::Scheduler& scheduler = fabric_->scheduler();
  while (!applier_stopping_) {
    if (applier_->step()) continue;
    scheduler.park(applier_point_, scheduler.now() + scheduler.up_to(2 * kNanosPerMs));
  }
}

void ServerProcess::run_acceptor() {
  while (!stopping_) {
    acceptor_->step(kTickMs);
    if (memory_ != nullptr) {
      memory_->set_tick(static_cast<std::uint64_t>(fabric_->scheduler().now() / kNanosPerMs));
    }
    if (store_ != nullptr) follow_wall_clock();
  }
}

server::WallClock::Look ServerProcess::look_at_wall() const {
  const Nanos now = fabric_->scheduler().now();
  return {.clock = now, .since_boot = now, .unix_ms = wall_.unix_ms() + wall_error_ms_};
}

// Like Server::follow_wall_clock.
void ServerProcess::follow_wall_clock() {
  if (follows_ == ServerOptions::Follows::kNever) return;
  const server::WallClock::Look look = look_at_wall();
  (void)wall_clock_.follow(look);
  const std::int64_t at_once = look.unix_ms - look.clock / kNanosPerMs;
  store_->expiry_clock().set(follows_ == ServerOptions::Follows::kAtOnce
                                 ? static_cast<std::uint64_t>(at_once)
                                 : wall_clock_.unix_ms_at_0());
}

// Polls, in place of a condition variable.
void ServerProcess::wait_until(const std::function<bool()>& done, const Deadline& deadline) {
  while (!done() && !deadline.passed() && !stopping_)
    fabric_->scheduler().sleep(1 + fabric_->scheduler().up_to(2'000));
}

void ServerProcess::publish_marks() {
  memory_->set_marks(Version::of(boot_, log_->wal_mark()), Version::of(boot_, log_->sync_mark()));
}

void ServerProcess::crash(Disk::End end) {
  stopping_ = applier_stopping_ = true;
  gone_at_ = fabric_->scheduler().now();
  fabric_->crash(*transport_);
  disk_.crash(end);
  fabric_->scheduler().notify(applier_point_);
}

bool ServerProcess::stop() {
  stopping_ = true;
  listener_->wake();
  for (const auto& worker : workers_)
    worker->queue().wake();
  rdma::sim::Scheduler& scheduler = fabric_->scheduler();
  while (running_ > 1)
    scheduler.park(joined_, scheduler.now() + kNanosPerMs);
  gone_at_ = scheduler.now();
  fabric_->crash(*transport_);
  stop_background();
  const Deadline patience = Deadline::after_ms(scheduler, 60'000);
  const bool counted = end_counters(patience);
  applier_->request_sync(log_->last_begun());
  while (log_->sync_mark() < log_->last_begun() && !patience.passed()) {
    scheduler.notify(applier_point_);
    scheduler.sleep(kNanosPerMs);
  }
  applier_stopping_ = true;
  scheduler.notify(applier_point_);
  join();
  const bool saved = counted && log_->sync_mark() >= log_->last_begun();
  disk_.crash(Disk::End::kMachine);
  return saved;
}

// Like CounterFlusher::end, on the simulated clock. Meanwhile the applier frees space in the log.
bool ServerProcess::end_counters(const Deadline& patience) {
  if (counter_flusher_ == nullptr) return true;
  rdma::sim::Scheduler& scheduler = fabric_->scheduler();
  for (;;) {
    if (store_->counter_cells().end_all().status) return true;
    if (patience.passed()) return false;
    scheduler.sleep(kNanosPerMs);
  }
}

void ServerProcess::join() {
  stop_background();
  rdma::sim::Scheduler& scheduler = fabric_->scheduler();
  while (running_ != 0)
    scheduler.park(joined_, scheduler.now() + kLonger);
}

}  // namespace rkv::sim
