#include "server/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "common/log.h"
#include "common/random.h"
#include "common/thread.h"
#include "server/monitor/reports.h"
#include "server/persistence/boot_number.h"

namespace rkv::server {

namespace {

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{} MiB", (bytes + (1U << 20) - 1) >> 20);
}

std::string host_of(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

}  // namespace

Server::Server(Options options, const Clock& clock, OpenTransports open_transports)
    : options_(std::move(options)),
      clock_(clock),
      open_transports_(std::move(open_transports)),
      started_(clock.now()),
      data_(options_),
      access_(options_),
      monitor_(clock) {}

Server::~Server() {
  if (const auto failure = stop()) log_error(EventName("stop_failed"), "{}", failure->sentence);
}

// Starting a thread may fail although check_threads() passed, if other processes of the user start
// threads too. The destructor ends what was started by then.
std::optional<Failure> Server::start() {
  try {
    return start_parts();
  } catch (const std::system_error& error) {
    return thread_failure(error);
  } catch (const std::bad_alloc&) {
    return Failure{kExitEnvironment,
                   "out of memory: raise the limit of address space (ulimit -v) or of the "
                   "container, or lower --memory"};
  }
}

std::optional<Failure> Server::start_parts() {
  if (auto failure = check_threads()) return failure;
  if (auto failure = load_users()) return failure;
  if (auto failure = has_disk() ? data_.lock() : begin_without_disk()) return failure;
  if (auto failure = start_monitor()) return failure;
  if (auto failure = open_data()) return failure;
  monitor_.doing("opening the network");
  if (auto failure = open_network()) return failure;
  if (options_.is_in_group()) return join_group();
  monitor_.doing("allocating the first memory");
  if (auto failure = create_store()) return failure;
  if (auto failure = create_workers()) return failure;
  return begin_serving();
}

// The database aborts the process if it cannot start a thread; it starts up to 15 at a time to open
// its tables. So the limits are checked before it is opened.
std::optional<Failure> Server::check_threads() const {
  constexpr unsigned kBesideWorkers = 24;  // README.md lists them
  constexpr std::size_t kOfDatabase = std::size_t{64} << 20;
  const unsigned of_group = options_.is_in_group() ? 21 : 0;  // gRPC's and the replicator's
  const unsigned count = of_group + kBesideWorkers +
                         2 * std::min(options_.threads, options_.max_clients);  // two transports
  if (const Status tried = try_threads(count, kOfDatabase); !tried) {
    return environment_failure(fmt::format("cannot start {} threads", count), tried.error());
  }
  return std::nullopt;
}

std::optional<Failure> Server::load_users() {
  Revocations::Store store;
  if (options_.is_in_group()) {
    store = [this](std::vector<RevokedSecret> secrets, std::function<void(const Status&)> done) {
      replicator_->revoke(std::move(secrets), done);
    };
  }
  return access_.load(
      [this](const std::shared_ptr<const Users>& left, std::string_view user) {
        return endpoints_->end_revoked(left, user, options_.is_in_group());
      },
      std::move(store));
}

// Runs before the steps that take long, so that an operator can watch them.
std::optional<Failure> Server::start_monitor() {
  if (options_.metrics.empty()) return std::nullopt;
  if (const Status listening = monitor_.listen(options_.metrics, options_.metrics_names);
      !listening)
    return environment_failure("cannot use --metrics " + options_.metrics, listening.error());
  return std::nullopt;
}

std::optional<Failure> Server::begin_without_disk() {
  log_warn(EventName("memory_only"),
           "no --data-dir is given: all data is in memory only and is lost when the server stops");
  if (options_.evict) {
    log_info(EventName("cache"),
             "a cache: when memory is full, the records used least recently are dropped");
  }
  const FirstVersion first = first_version_at(wall_clock_ns(), random_from_kernel());
  boot_ = first.boot;
  log_ = CommitLog::create_volatile(first.sequence);
  return std::nullopt;
}

std::optional<Failure> Server::open_data() {
  if (!has_disk()) return std::nullopt;
  if (auto failure = data_.finish_copy()) return failure;
  monitor_.doing("opening the database");
  if (auto failure = data_.open(database_env_)) return failure;
  engine_ = data_.engine();
  storage_ = engine_;
  return options_.is_in_group() ? std::nullopt : open_log();
}

// In a group: when this replica is elected.
std::optional<Failure> Server::open_log() {
  boot_ = engine_->boot();
  auto log =
      CommitLog::create(options_.queue_bytes, options_.is_in_group() ? CommitLog::Group::kReplicated
                                                                     : CommitLog::Group::kNone);
  if (!log) return environment_failure("cannot allocate the commit log (--queue)", log.error());
  log_ = std::move(*log);
  disk_ = std::make_unique<DiskWork>(DiskWork::Parts{
      .options = options_, .clock = clock_, .data = data_, .log = *log_, .wake_workers = [this] {
        endpoints_->wake_workers();
      }});
  auto failure = disk_->open_backups();
  if (!failure || !replicator_) return failure;
  // It is the primary already, and clients need it more than backups.
  log_error(EventName("backups_disabled"), "no backup can be made: {}", failure->sentence);
  return std::nullopt;
}

std::optional<Failure> Server::open_network() {
  auto transports = open_transports_(options_);
  if (!transports) {
    const std::string which =
        options_.device.empty() ? fmt::format("--transport {} for --listen {}",
                                              rdma::to_string(options_.transport), options_.listen)
                                : "--device " + options_.device;
    return environment_failure("cannot open " + which, transports.error());
  }
  log_info(EventName("transport"), "transport {}", transports->reason);
  if (options_.no_auth) {
    log_warn(EventName("no_auth"), "{}", who_may_connect());
  } else {
    log_info(EventName("access"), "{}", who_may_connect());
  }
  endpoints_ = std::make_unique<Endpoints>(std::move(*transports));
  if (const Status listening = endpoints_->listen(options_.listen, clock_); !listening)
    return environment_failure("cannot use --listen " + options_.listen, listening.error());
  return std::nullopt;
}

std::optional<Failure> Server::join_group() {
  // Check now for things that only a primary needs: they must not be missing when this replica is
  // elected.
  if (auto failure = data_.check_backups()) return failure;
  if (std::unique_ptr<StoreMemory> tried; auto failure = create_memory(&tried)) return failure;
  group_ = std::make_unique<GroupMember>(
      GroupMember::Parts{.options = options_,
                         .clock = clock_,
                         .data = data_,
                         .endpoints = *endpoints_,
                         .access = access_,
                         .become_primary = [this](std::uint32_t term) { return lead(term); }});
  if (auto failure = group_->join()) return failure;
  replicator_ = &group_->replicator();
  monitor_.doing("following the group's primary");
  monitor_.in_group([this] { return replicator_->status(); });
  // From here on a signal must be handled by stop(): other replicas may count on this one.
  if (before_serving_) std::exchange(before_serving_, nullptr)();
  log_info(EventName("replica_ready"), "kvserver is replica {} of group {}, and waits for etcd",
           field("name", options_.name), field("group", options_.group));
  return std::nullopt;
}

std::optional<Failure> Server::lead(std::uint32_t term) {
  monitor_.doing("becoming the primary of the group");
  auto storage = replicator_->take_over();
  if (!storage) return Failure{kExitDataLater, to_string(storage.error())};
  storage_ = *storage;
  earlier_outcomes_ = replicator_->outcomes();
  if (const Status begins = engine_->begin_at(term); !begins)
    return Failure{kExitData, to_string(begins.error())};
  if (auto failure = open_log()) return failure;
  if (auto failure = create_store()) return failure;
  if (auto failure = create_workers()) return failure;
  return begin_serving();
}

std::optional<Failure> Server::create_memory(std::unique_ptr<StoreMemory>* made) const {
  const MemoryOptions layout{.memory_bytes = options_.memory_bytes,
                             .epoch = random_from_kernel(),
                             .hash_seed = engine_ ? engine_->hash_seed() : random_from_kernel(),
                             .index_growth = engine_ ? 3U : 0U,
                             .report_reads = options_.evict,
                             .scrub = options_.scrub};
  auto memory = StoreMemory::create(
      layout, [this](std::size_t bytes) { return endpoints_->allocate(bytes); });
  if (!memory) {
    return environment_failure("cannot allocate the first memory that clients may read (--memory " +
                                   mebibytes(options_.memory_bytes) + ")",
                               memory.error());
  }
  *made = std::move(*memory);
  return std::nullopt;
}

std::optional<Failure> Server::create_store() {
  const auto physical = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (options_.memory_bytes > physical) {
    log_warn(EventName("memory_beyond_machine"),
             "--memory {} is more than the machine has ({}): the store cannot use all of it",
             mebibytes(options_.memory_bytes), mebibytes(physical));
  }
  if (auto failure = create_memory(&memory_)) return failure;
  if (const Status made = endpoints_->create_roots(*memory_); !made) {
    return environment_failure("cannot allocate the root of another network", made.error());
  }
  wall_.emplace(WallClock::look(clock_));
  store_ = std::make_unique<Store>(*memory_, *log_, clock_, boot_, wall_->unix_ms_at_0());
  if (replicator_) follow_group_time();
  if (options_.evict) {
    store_->evictor().drop_when_full();
  } else if (!engine_) {
    store_->move_records_for_long_ones();
  }
  // If the wall clock is ahead, records that expired since the last start may only seem expired. So
  // they are hidden, and removed only if the next start finds them expired too.
  if (engine_)
    store_->loader().keep_expired(engine_->earlier_unix_ms(), store_->expiry_clock().unix_ms());
  return std::nullopt;
}

std::optional<Failure> Server::create_workers() {
  counter_flusher_ =
      std::make_unique<CounterFlusher>(*store_, clock_, [this] { endpoints_->wake_workers(); });
  if (const Status hints = endpoints_->create_hints(*store_); !hints) {
    return environment_failure("cannot allocate the hint words", hints.error());
  }
  if (const Status cells = endpoints_->create_cells(options_.counter_cells, *store_); !cells) {
    return environment_failure("cannot allocate the cells of one-sided counters (--counter-cells)",
                               cells.error());
  }
  if (disk_) disk_->attach(*store_);
  // Many short-lived clients may come and go while another one tries to come back.
  constexpr std::size_t kLeastTables = 1024;
  outcomes_ = std::make_unique<OutcomeArchive>(
      clock_, std::max(kLeastTables, 2 * std::size_t{options_.max_clients}));
  const std::uint32_t threads = std::min(options_.threads, options_.max_clients);
  WorkerOptions each{.clients = (options_.max_clients + threads - 1) / threads,
                     .poll = options_.poll};
  const auto make = [&, made = 0U](rdma::Transport& transport, std::uint32_t network) mutable {
    // The second transport is usually idle: its workers share the CPUs of the first's.
    if (!options_.cpus.empty()) each.cpu = options_.cpus[made++ % threads % options_.cpus.size()];
    return Worker::create({.transport = transport,
                           .store = *store_,
                           .log = *log_,
                           .clock = clock_,
                           .boot = boot_,
                           .stats = [this] { return stats_json(facts()); },
                           .make_durable =
                               [this](Durability level, std::uint64_t sequence) {
                                 if (disk_) disk_->applier()->request(level, sequence);
                                 if (replicator_) replicator_->request(level, sequence);
                               },
                           .durability = options_.durability,
                           .network = network,
                           .backups = disk_ ? disk_->backups() : nullptr,
                           .counter_flusher = counter_flusher_.get(),
                           .scans = disk_ ? &disk_->scans() : nullptr,
                           .disk_fetcher = disk_ ? &disk_->fetcher() : nullptr,
                           .revocations = access_.revocations(),
                           .outcomes = outcomes_.get(),
                           .rounds = replicator_ ? &replicator_->rounds() : nullptr,
                           .earlier_outcomes = earlier_outcomes_.get(),
                           .lacks_copies = replicator_ ? &replicator_->lacks_copies() : nullptr,
                           .change_group = group_ ? group_->change_group() : nullptr},
                          each);
  };
  if (const Status created = endpoints_->create_workers(threads, make); !created) {
    return environment_failure(
        fmt::format("cannot allocate the message buffers of {} clients (--max-clients)",
                    options_.max_clients),
        created.error());
  }
  log_info(
      EventName("memory_pinned"),
      "pinned {} for the store, up to {} as it grows, and {} for messages ({} threads, {} clients, "
      "{} polling)",
      mebibytes(memory_->allocated_bytes()), mebibytes(options_.memory_bytes),
      mebibytes(endpoints_->message_bytes()), threads * endpoints_->count(), options_.max_clients,
      to_string(options_.poll));

  return std::nullopt;
}

void Server::start_maintenance() {
  StoreMaintenance::Parts parts{.store = *store_, .clock = clock_};
  if (disk_) {
    parts.room_made = [this] { disk_->fetcher().room_made(); };
    parts.request_sync = [this] { disk_->applier()->request_sync(log_->last_begun()); };
  }
  maintenance_ = std::make_unique<StoreMaintenance>(std::move(parts));
  maintenance_->start();
}

// The seed is drawn when a database is created, and stays with it and its copies.
std::uint32_t Server::store_number() const {
  if (replicator_) return replicator_->group();
  if (engine_ == nullptr) return 0;
  const std::uint64_t seed = engine_->hash_seed();
  return static_cast<std::uint32_t>(seed ^ seed >> 32U) | 1U;
}

std::optional<Failure> Server::begin_serving() {
  if (before_serving_) before_serving_();
  if (disk_) {
    if (auto failure = data_.claim(log_->capacity_bytes() / 8)) return failure;
    publish_marks();  // all existing records are of earlier boots, so they are on disk
    disk_->start_applier(*storage_, [this] { disk_moved(); });
    if (replicator_) replicate();
    disk_->start_readers();
  }
  store_->counter_cells().on_first_cell([this] { counter_flusher_->call(); });
  counter_flusher_->start();
  start_maintenance();
  if (disk_) disk_->start_loading();
  tick_memory();
  endpoints_->admit({.workers = {},
                     .all_workers = {},
                     .epoch = memory_->epoch(),
                     .root = {},
                     .in_group = replicator_ != nullptr,
                     .store = store_number(),
                     .max_clients = options_.max_clients,
                     .max_offences = options_.max_offences,
                     .authentication = access_.authentication()});
  ready_ = true;
  if (group_) group_->serves();
  monitor_.ready({.facts = [this] { return facts(); },
                  .log = [this] { return log_facts(); },
                  .workers = [this] { return endpoints_->workers(); }});
  log_info(EventName("ready"), "kvserver ready: listening on {}:{} ({}){}",
           field("host", host_of(options_.listen)), field("port", endpoints_->port()),
           field("device", endpoints_->describe()),
           engine_ ? fmt::format(", about {} records on disk", engine_->estimated_records()) : "");
  return std::nullopt;
}

// On the applier's thread.
void Server::disk_moved() {
  if (replicator_) {
    replicator_->disk_moved();
  } else {
    publish_marks();
  }
  endpoints_->wake_workers();
  disk_->marks_changed();
}

void Server::replicate() {
  replicator_->serve(
      {.log = *log_,
       .term = boot_,
       .marks_changed =
           [this] {
             publish_marks();
             endpoints_->wake_workers();
           },
       .disk_hangs = [this] { return disk_->applier()->counts().hung_for(clock_.now()) != 0; },
       .show = [this](Nanos tick,
                      Version replicated) { memory_->set_group_line(tick, replicated); },
       .close = [this](const std::string& primary) { endpoints_->leave(primary); },
       .is_quiet = [this] { return endpoints_->are_quiet(); }});
}

// A change of the primary must be short, so a replica ticks more often during one.
Nanos Server::tick_every() const {
  return (group_ && group_->may_change() ? 10 : 100) * kNanosPerMs;
}

// Called once before the applier runs, then only on the applier's thread (in a group: the
// replicator's). Clients READ these marks to learn what a fail-over keeps, so they are the group's.
void Server::publish_marks() {
  const std::uint64_t sync = log_->group_sync_mark();  // first: it never passes the other
  memory_->set_marks(Version::of(boot_, log_->group_wal_mark()), Version::of(boot_, sync));
}

void Server::follow_group_time() {
  const TimeLine time = replicator_->time();
  store_->expiry_clock().set(static_cast<std::uint64_t>(time.unix_ms_at_0), time.until,
                             static_cast<std::uint64_t>(time.begins_at_0));
}

void Server::follow_wall_clock() {
  if (const std::int64_t step = wall_->follow(WallClock::look(clock_)); step != 0) {
    log_warn(EventName("clock_set"),
             "the wall clock was adjusted by {} s: keys expire by the new time",
             field("seconds", static_cast<double>(step) / 1e3));
  }
  store_->expiry_clock().set(wall_->unix_ms_at_0());
}

void Server::tick() {
  if (group_) group_->take_turn();
  if (ready_ && !ended()) tick_memory();
  if (!options_.metrics.empty()) monitor_.tick();
}

void Server::tick_memory() {
  replicator_ ? follow_group_time() : follow_wall_clock();
  memory_->set_tick(static_cast<std::uint64_t>((clock_.now() - started_) / kNanosPerMs));
  if (disk_) disk_watch_.look(log_facts());
}

// At rest: no client is served, and the workers' unfinished writes were destroyed with them.
std::optional<Failure> Server::check_memory() {
  if (!options_.check_memory || store_ == nullptr || !ready_) return std::nullopt;
  endpoints_->end_workers();
  if (const std::string wrong = store_->check_at_rest(); !wrong.empty())
    return Failure{kExitOther, fmt::format("the memory is damaged: {}", wrong)};
  log_info(EventName("memory_checked"), "memory checked: {} records in {}", store_->stats().records,
           mebibytes(memory_->allocated_bytes()));
  return std::nullopt;
}

// Saves the last writes. REQUIRES: the server has served.
std::optional<Failure> Server::save() {
  constexpr std::int64_t kPatienceMs = 10'000;  // the applier's stop waits at least as long again
  const CounterCells::Swept ended = counter_flusher_->end(kPatienceMs);
  if (group_) (void)group_->stop();
  if (const Status saved = disk_->stop(); !saved)
    return Failure{kExitOther, to_string(saved.error())};
  if (ended.status) return std::nullopt;
  return Failure{kExitOther, fmt::format("the last changes of {} one-sided counters are lost: {}",
                                         ended.left, to_string(ended.status.error()))};
}

std::optional<Failure> Server::stop() {
  if (std::exchange(stopped_, true)) return std::nullopt;
  std::optional<Failure> failure;
  monitor_.stopping();
  if (disk_) disk_->begin_stop();
  // Clients ask the next primary what became of their writes.
  if (endpoints_ && ended()) endpoints_->give_up_replies();
  if (endpoints_) endpoints_->stop();
  if (disk_) disk_->stop_reading();
  if (maintenance_) maintenance_->stop();
  if (counter_flusher_) counter_flusher_->stop();
  if (disk_) disk_->stop_scans();
  if (disk_ && disk_->applier() != nullptr) {
    failure = save();
  } else if (group_) {
    if (const Status saved = group_->stop(); !saved)
      failure = Failure{kExitOther, to_string(saved.error())};
  }
  if (auto open = data_.close(); open && !failure) failure = std::move(open);
  if (ended() && ended()->has_copy && !failure) failure = data_.install_received_copy();
  monitor_.close();
  if (auto damaged = check_memory(); damaged && !failure) failure = std::move(damaged);
  if (std::exchange(ready_, false) && !failure) {
    log_info(EventName("stopped"), "stopped{}", engine_ ? ": all data is saved" : "");
  }
  return failure;
}

}  // namespace rkv::server
