#include "server/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "common/log.h"
#include "common/random.h"
#include "common/thread.h"
#include "server/group/etcd_configuration_store.h"
#include "server/monitor/reports.h"
#include "server/persistence/boot_number.h"
#include "server/persistence/files.h"
#include "server/replica/replica_storage.h"
#include "server/replication/connection/group_secret.h"
#include "server/replication/copy/copy_directory.h"

namespace rkv::server {

namespace {

Failure environment_failure(const std::string& doing, const Error& error) {
  return {.exit_code = kExitEnvironment,
          .sentence = fmt::format("{}: {}", doing, to_string(error))};
}

// Exit code for an error in the data directory: whether another start may succeed by itself.
ExitCode exit_code_of(const Error& error) {
  switch (error.code) {
    case Code::kIo:
    case Code::kBusy:
    case Code::kOutOfMemory:
      return kExitDataLater;
    default:
      return kExitData;
  }
}

// A users file that cannot be read at the moment may be readable at a later start: its file system
// may not be mounted yet.
ExitCode exit_code_of_users(const Error& error) {
  return error.code == Code::kIo || error.code == Code::kPermission ? kExitEnvironment : kExitUsage;
}

void warn_if_empty(const Users& users, const std::string& path) {
  if (users.count() != 0) return;
  log_warn(EventName("no_users"),
           "the users file {} has no users: nobody can connect until it has one and is read again",
           path);
}

// More than the steps of a hand-over may take together.
constexpr Nanos kLongestLeave = 8 * kNanosPerSecond;

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{} MiB", (bytes + (1U << 20) - 1) >> 20);
}

std::int64_t unix_ns() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count();
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
  if (auto failure = lock_data()) return failure;
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
  const unsigned of_group = options_.is_in_group() ? 20 : 0;  // gRPC's and the replicator's
  const unsigned count = of_group + kBesideWorkers +
                         2 * std::min(options_.threads, options_.max_clients);  // two transports
  if (const Status tried = try_threads(count, kOfDatabase); !tried) {
    return environment_failure(fmt::format("cannot start {} threads", count), tried.error());
  }
  return std::nullopt;
}

std::optional<Failure> Server::load_users() {
  if (options_.users.empty()) return std::nullopt;
  std::string problem;
  auto users = Users::load(options_.users, &problem);
  if (!users) return Failure{exit_code_of_users(users.error()), problem};
  warn_if_empty(**users, options_.users);
  authentication_ = std::make_shared<Authentication>(*users);
  revocations_ = std::make_unique<Revocations>(
      *users, authentication_,
      [this](const std::shared_ptr<const Users>& left, std::string_view user) {
        return endpoints_->end_revoked(left, user);
      });
  return std::nullopt;
}

void Server::read_users_again() {
  if (authentication_ == nullptr) return;
  std::string problem;
  auto users = Users::load(options_.users, &problem);
  if (!users) {
    log_error(EventName("users_wrong"), "the users were not read again, nothing changes: {}",
              problem);
    return;
  }
  const std::vector<std::string> kept_out = revocations_->replace(*users);
  log_info(EventName("users_read"), "the users were read again: {} in {}", (*users)->count(),
           options_.users);
  for (const std::string& name : kept_out) {
    log_warn(EventName("user_kept_out"),
             "user \"{}\" was revoked and stays out, although {} still has its line: remove the "
             "line, or it may connect after the next start",
             field("user", name), options_.users);
  }
  warn_if_empty(**users, options_.users);
}

// Runs before the steps that take long, so that an operator can watch them.
std::optional<Failure> Server::start_monitor() {
  if (options_.metrics.empty()) return std::nullopt;
  if (const Status listening = monitor_.listen(options_.metrics, options_.metrics_names);
      !listening)
    return environment_failure("cannot use --metrics " + options_.metrics, listening.error());
  return std::nullopt;
}

std::optional<Failure> Server::lock_data() {
  const std::string& directory = options_.data_dir;
  if (directory.empty()) {
    log_warn(
        EventName("memory_only"),
        "no --data-dir is given: all data is in memory only and is lost when the server stops");
    if (options_.evict) {
      log_info(EventName("cache"),
               "a cache: when memory is full, the records used least recently are dropped");
    }
    const FirstVersion first = first_version_at(unix_ns(), random_from_kernel());
    boot_ = first.boot;
    log_ = CommitLog::create_volatile(first.sequence);
    return std::nullopt;
  }
  std::error_code error;
  if (options_.require_data && !std::filesystem::exists(directory + "/db/CURRENT", error)) {
    return Failure{kExitData, fmt::format("the data directory {} holds no data, but --require-data "
                                          "needs it: is its file system mounted?",
                                          directory)};
  }
  if (const int made = make_directory_synced(directory); made != 0) {
    const bool passes = made == ENOSPC || made == EDQUOT || made == EIO || made == EMFILE;
    return Failure{passes ? kExitDataLater : kExitData,
                   cannot_make(directory, std::error_code(made, std::generic_category()))};
  }
  std::string sentence;
  auto lock = LockFile::acquire(directory, &sentence);
  if (!lock) {
    const bool in_use = lock.error().code == Code::kConflict;
    return Failure{in_use ? kExitDataLater : exit_code_of(lock.error()), sentence};
  }
  lock_.emplace(std::move(*lock));
  // Directories that this server makes are private; a copied or an older one may not be.
  if (is_open_to_others(directory) && is_open_to_others(directory + kDatabaseDirectory)) {
    log_warn(EventName("data_not_private"),
             "users other than the owner may enter the data directory {}: run chmod -R go= {}",
             directory, directory);
  }
  return std::nullopt;
}

std::optional<Failure> Server::open_data() {
  const std::string& directory = options_.data_dir;
  if (directory.empty()) return std::nullopt;
  std::error_code error;
  if (std::filesystem::exists(directory + kRestoring, error)) {
    return Failure{
        kExitData,
        fmt::format("{} is the rest of an interrupted restore: remove it and restore again",
                    directory)};
  }
  std::string problem;
  if (const Status whole = recover_copy(directory, &problem); !whole)
    return Failure{exit_code_of(whole.error()), problem};
  monitor_.doing("opening the database");
  const std::int64_t now = unix_ns();
  auto engine =
      StorageEngine::open(directory, {.env = database_env_,
                                      .accept_damaged_log = options_.accept_damaged_log,
                                      .least_boot = options_.is_in_group() ? 1 : least_boot_at(now),
                                      .unix_ms = static_cast<std::uint64_t>(now / kNanosPerMs)});
  if (!engine) {
    return Failure{exit_code_of(engine.error()), fmt::format("cannot use the data directory {}: {}",
                                                             directory, to_string(engine.error()))};
  }
  engine_ = std::move(*engine);
  storage_ = engine_.get();
  if (auto failure = check_group()) return failure;
  return options_.is_in_group() ? std::nullopt : open_log();
}

// The versions of a group's primary begin with its term. A server of its own would use others.
std::optional<Failure> Server::check_group() const {
  if (options_.is_in_group()) return std::nullopt;
  const auto kept = ReplicaStorage::kept_in(*engine_);
  if (!kept) return Failure{exit_code_of(kept.error()), to_string(kept.error())};
  if (kept->group == 0) return std::nullopt;
  return Failure{kExitData, fmt::format("the data directory {} belongs to a replica of a group: "
                                        "start it with --etcd, --group and --name",
                                        options_.data_dir)};
}

// In a group: when this replica is elected.
std::optional<Failure> Server::open_log() {
  boot_ = engine_->boot();
  auto log =
      CommitLog::create(options_.queue_bytes, options_.is_in_group() ? CommitLog::Group::kReplicated
                                                                     : CommitLog::Group::kNone);
  if (!log) return environment_failure("cannot allocate the commit log (--queue)", log.error());
  log_ = std::move(*log);
  make_scans();
  return open_backups();
}

std::optional<Failure> Server::open_backups() {
  if (options_.backup_dir.empty()) return std::nullopt;
  std::error_code error;
  const auto directory = std::filesystem::absolute(options_.backup_dir, error);
  if (is_within(directory, options_.data_dir)) {
    return Failure{kExitData,
                   fmt::format("the backup directory {} is within the data directory {}: give "
                               "--backup-dir a directory outside of it",
                               directory.string(), options_.data_dir)};
  }
  int failed = make_directory_synced(directory);
  if (failed == 0 && access(directory.c_str(), W_OK | X_OK) != 0) failed = errno;
  if (failed != 0) {
    return Failure{kExitData,
                   fmt::format("cannot use the backup directory {}: {}: check --backup-dir",
                               directory.string(), strerror(failed))};
  }
  backups_ = std::make_unique<Backups>(
      directory.string(),
      Backups::Parts{
          .log = *log_,
          .checkpoint = [this](const std::string& to) { return engine_->checkpoint(to); },
          .stop_checkpoints = [this] { engine_->stop_checkpoints(); },
          .request_sync = [this](std::uint64_t sequence) { applier_->request_sync(sequence); },
          .finished = [this] { endpoints_->wake_workers(); }});
  return std::nullopt;
}

void Server::make_scans() {
  scans_ = std::make_unique<Scans>(Scans::Parts{
      .log = *log_,
      .sweep =
          [this] {
            return store_->counter_cells().in_use() ? store_->counter_cells().sweep() : Status{};
          },
      .request_write = [this](std::uint64_t sequence) { applier_->request_write(sequence); },
      .read =
          [this](const KeyRange& range, const StorageEngine::RangeVisitor& visit) {
            return engine_->read_range(range, visit);
          },
      .has_expired =
          [this](const RecordFields& record) {
            return store_->expiry_clock().has_expired(record.expiry_ms, record.version);
          },
      .finished = [this] { endpoints_->wake_workers(); }});
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
  GroupSecret secret = GroupSecret::well_known();
  if (!options_.group_secret.empty()) {
    std::string problem;
    auto loaded = GroupSecret::load(options_.group_secret, &problem);
    if (!loaded) return Failure{exit_code_of_users(loaded.error()), problem};
    secret = *loaded;
  }
  configurations_ = std::make_unique<EtcdConfigurationStore>(options_.etcd, options_.group, clock_);
  auto replicator = Replicator::create(
      {.group = options_.group,
       .name = options_.name,
       .address = options_.listen,
       .data_dir = options_.data_dir,
       .secret = secret,
       .queue_bytes = options_.queue_bytes,
       .sync_interval_ms = static_cast<int>(options_.sync_interval_ms),
       .min_copies = options_.min_copies},
      {.engine = *engine_,
       .store = *configurations_,
       .clock = clock_,
       .unix_ms = [] { return static_cast<std::uint64_t>(unix_ns() / kNanosPerMs); },
       .lanes = options_.lanes ? LaneTransports{.verbs = endpoints_->transport("verbs"),
                                                .shm = endpoints_->transport("shm")}
                               : LaneTransports{}});
  if (!replicator) {
    return Failure{exit_code_of(replicator.error()),
                   fmt::format("cannot use the data directory {}: {}", options_.data_dir,
                               to_string(replicator.error()))};
  }
  replicator_ = std::move(*replicator);
  std::string problem;
  if (const Status listening = replicator_->start(&problem); !listening)
    return Failure{kExitEnvironment, problem};
  monitor_.doing("following the group's primary");
  monitor_.in_group([this] { return replicator_->status(); });
  // From here on a signal must be handled by stop(): other replicas may count on this one.
  if (before_serving_) std::exchange(before_serving_, nullptr)();
  log_info(EventName("replica_ready"), "kvserver is replica {} of group {}, and waits for etcd",
           field("name", options_.name), field("group", options_.group));
  return std::nullopt;
}

void Server::follow_group() {
  const Replicator::State state = replicator_->state();
  if (state.phase == Replicator::Phase::kEnded) {
    ended_ = {.failure = {kExitDataLater, fmt::format("this replica has ended its part in the "
                                                      "group: {}",
                                                      state.why)},
              .may_start_again = state.may_start_again,
              .has_copy = state.has_copy};
    if (!state.may_start_again) ended_->failure.exit_code = kExitData;
    return;
  }
  if (state.phase == Replicator::Phase::kElected && !ready_) {
    if (auto failure = become_primary(state.term))
      ended_ = {.failure = *std::move(failure), .may_start_again = false};
    return;
  }
  if (!ready_ && (state.primary != std::exchange(followed_, state.primary))) {
    endpoints_->refuse_as_backup(state.primary);
    log_info(EventName("following"), "the primary of the group is {}",
             field("primary", state.primary.empty() ? "not known" : state.primary));
  }
}

std::optional<Failure> Server::become_primary(std::uint32_t term) {
  log_info(EventName("elected"), "this replica is the primary of the group in term {}",
           field("term", term));
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

std::optional<Failure> Server::create_store() {
  const auto physical = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (options_.memory_bytes > physical) {
    log_warn(EventName("memory_beyond_machine"),
             "--memory {} is more than the machine has ({}): the store cannot use all of it",
             mebibytes(options_.memory_bytes), mebibytes(physical));
  }
  const MemoryOptions layout{.memory_bytes = options_.memory_bytes,
                             .epoch = random_from_kernel(),
                             .hash_seed = engine_ ? engine_->hash_seed() : random_from_kernel(),
                             .index_growth = engine_ ? 3U : 0U,
                             .report_reads = options_.evict};
  auto memory = StoreMemory::create(
      layout, [this](std::size_t bytes) { return endpoints_->allocate(bytes); });
  if (!memory) {
    return environment_failure("cannot allocate the first memory that clients may read (--memory " +
                                   mebibytes(options_.memory_bytes) + ")",
                               memory.error());
  }
  memory_ = std::move(*memory);
  if (const Status made = endpoints_->create_roots(*memory_); !made) {
    return environment_failure("cannot allocate the root of another network", made.error());
  }
  wall_.emplace(WallClock::look(clock_));
  const std::uint64_t at_0 = wall_->unix_ms_at_0();
  store_ = std::make_unique<Store>(*memory_, *log_, clock_, boot_,
                                   replicator_ ? group_unix_ms_at_0(at_0) : at_0);
  if (options_.evict) store_->evictor().drop_when_full();
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
  create_disk_fetcher();
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
                                 if (applier_) applier_->request(level, sequence);
                                 if (replicator_) replicator_->request(level, sequence);
                               },
                           .durability = options_.durability,
                           .network = network,
                           .backups = backups_.get(),
                           .counter_flusher = counter_flusher_.get(),
                           .scans = scans_.get(),
                           .disk_fetcher = disk_fetcher_.get(),
                           .revocations = revocations_.get(),
                           .outcomes = outcomes_.get(),
                           .rounds = replicator_ ? &replicator_->rounds() : nullptr,
                           .earlier_outcomes = earlier_outcomes_.get(),
                           .lacks_copies = replicator_ ? &replicator_->lacks_copies() : nullptr,
                           .change_group = change_of_group()},
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

DiskReads Server::disk_reads() const {
  return {.log = *log_,
          .read = [this](Bytes key,
                         const DiskReads::Visitor& visit) { return engine_->read(key, visit); },
          .read_from =
              [this](Bytes first, const DiskReads::RangeVisitor& visit) {
                return engine_->read_from(first, visit);
              },
          .reopened = [this] { return engine_->reopened(); }};
}

// Before the workers, which refer to disk_fetcher_. Its threads start with the applier.
void Server::create_disk_fetcher() {
  if (engine_ == nullptr) return;
  store_->disk().begin_loading();
  disk_fetcher_ = std::make_unique<DiskFetcher>(DiskFetcher::Parts{
      .store = *store_,
      .disk = disk_reads(),
      .request_write = [this](std::uint64_t sequence) { applier_->request_write(sequence); },
      .finished = [this] { endpoints_->wake_workers(); }});
}

void Server::start_maintenance() {
  StoreMaintenance::Parts parts{.store = *store_, .clock = clock_};
  if (engine_ != nullptr) {
    parts.room_made = [this] { disk_fetcher_->room_made(); };
    parts.request_sync = [this] { applier_->request_sync(log_->last_begun()); };
  }
  maintenance_ = std::make_unique<StoreMaintenance>(std::move(parts));
  maintenance_->start();
}

void Server::start_loading() {
  if (engine_ == nullptr) return;
  disk_fetcher_->start();
  estimated_records_ = engine_->estimated_records();
  warm_up_ = std::make_unique<WarmUp>(WarmUp::Parts{
      .store = *store_,
      .disk = disk_reads(),
      .clock = clock_,
      .request_write = [this](std::uint64_t sequence) { applier_->request_write(sequence); },
      .estimated_records = estimated_records_,
      .bytes_per_second = options_.load_rate_bytes});
  warm_up_->start();
}

std::optional<Failure> Server::begin_serving() {
  if (before_serving_) before_serving_();
  if (engine_ != nullptr) {
    // From here on versions with this boot number may be seen. A start that fails earlier, for
    // example on a port in use, uses up no number.
    Status claimed = engine_->claim_boot();
    if (claimed) claimed = engine_->claim_through(log_->capacity_bytes() / 8);  // APPL-7
    if (!claimed) {
      return Failure{exit_code_of(claimed.error()),
                     fmt::format("cannot write to the data directory {}: {}", options_.data_dir,
                                 to_string(claimed.error()))};
    }
    publish_marks();  // all existing records are of earlier boots, so they are on disk
    const ApplierOptions options{.sync_interval_ms = static_cast<int>(options_.sync_interval_ms)};
    applier_ =
        std::make_unique<Applier>(*log_, *storage_, clock_, options, [this] { disk_moved(); });
    applier_->start();
    if (replicator_) replicate();
    if (backups_) backups_->start();
    scans_->start();
  }
  store_->counter_cells().on_first_cell([this] { counter_flusher_->call(); });
  counter_flusher_->start();
  start_maintenance();
  start_loading();
  tick_memory();
  endpoints_->admit({.workers = {},
                     .all_workers = {},
                     .epoch = memory_->epoch(),
                     .root = {},
                     .in_group = replicator_ != nullptr,
                     .group = replicator_ ? replicator_->group() : 0,
                     .max_clients = options_.max_clients,
                     .max_offences = options_.max_offences,
                     .authentication = authentication_});
  ready_ = true;
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
  if (backups_) backups_->marks_changed();
  scans_->marks_changed();
  disk_fetcher_->marks_changed();
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
       .disk_hangs = [this] { return applier_->counts().hung_for(clock_.now()) != 0; },
       .show = [this](Nanos tick,
                      Version replicated) { memory_->set_group_line(tick, replicated); },
       .close = [this](const std::string& primary) { endpoints_->leave(primary); },
       .is_quiet = [this] { return endpoints_->are_quiet(); }});
}

// Called by workers.
Worker::ChangeGroup Server::change_of_group() {
  if (replicator_ == nullptr) return {};
  return [this](Opcode opcode, std::string_view name) {
    const auto task = std::make_shared<GroupTask>([this] { endpoints_->wake_workers(); });
    const auto done = [task](const Status& status) { task->finish(status); };
    if (opcode == Opcode::kMovePrimary) {
      replicator_->hand_over(std::string(name), done);
    } else {
      replicator_->remove(std::string(name), done);
    }
    return std::shared_ptr<const GroupTask>(task);
  };
}

bool Server::begin_leaving() {
  if (replicator_ == nullptr || !ready_ || ended_) return false;
  leaving_until_ = clock_.now() + kLongestLeave;
  if (replicator_->state().is_handing_over) return true;  // by an operator's request
  std::promise<Status> begun;
  replicator_->hand_over({}, [&begun](const Status& status) { begun.set_value(status); });
  // An operator's request may have begun while etcd was asked.
  if (const Status status = begun.get_future().get();
      !status && !replicator_->state().is_handing_over) {
    log_warn(EventName("not_handed_over"), "this primary ends without a hand-over: {}",
             to_string(status.error()));
    leaving_until_ = 0;
    return false;
  }
  return true;
}

bool Server::is_leaving() const {
  return leaving_until_ != 0 && clock_.now() < leaving_until_ &&
         replicator_->state().is_handing_over;
}

// A replica's part in a change of the primary is a short one.
Nanos Server::tick_every() const {
  const bool may_change = replicator_ != nullptr && (!ready_ || leaving_until_ != 0);
  return (may_change ? 10 : 100) * kNanosPerMs;
}

// Called once before the applier runs, then only on the applier's thread; in a group, the
// replicator's.
// Clients READ these marks to learn what a fail-over keeps, so they are the group's.
void Server::publish_marks() {
  const std::uint64_t sync = log_->group_sync_mark();  // first: it never passes the other
  memory_->set_marks(Version::of(boot_, log_->group_wal_mark()), Version::of(boot_, sync));
}

void Server::follow_wall_clock() {
  if (const std::int64_t step = wall_->follow(WallClock::look(clock_)); step != 0) {
    log_warn(EventName("clock_set"),
             "the wall clock was adjusted by {} s: keys expire by the new time",
             field("seconds", static_cast<double>(step) / 1e3));
  }
  const std::uint64_t at_0 = wall_->unix_ms_at_0();
  store_->expiry_clock().set(replicator_ ? group_unix_ms_at_0(at_0) : at_0);
}

// The keys of a group expire by a time that all its replicas in sync know of, so that no key comes
// back when another becomes the primary. It never falls.
std::uint64_t Server::group_unix_ms_at_0(std::uint64_t wall_at_0) {
  const auto now = static_cast<std::uint64_t>(clock_.now() / kNanosPerMs);
  const std::uint64_t known = std::min(wall_at_0 + now, replicator_->latest_unix_ms());
  latest_unix_ms_ = std::max({known, latest_unix_ms_, replicator_->first_unix_ms()});
  return latest_unix_ms_ - now;
}

void Server::tick() {
  if (replicator_ && !ended_) {
    follow_group();
    group_watch_.look(*replicator_->status(), clock_.now());
  }
  if (ready_ && !ended_) tick_memory();
  if (!options_.metrics.empty()) monitor_.tick();
}

void Server::tick_memory() {
  follow_wall_clock();
  memory_->set_tick(static_cast<std::uint64_t>((clock_.now() - started_) / kNanosPerMs));
  if (applier_ != nullptr) disk_watch_.look(log_facts());
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

std::optional<Failure> Server::install_received_copy() const {
  std::string problem;
  if (const Status installed = install_copy(options_.data_dir, &problem); !installed)
    return Failure{kExitDataLater, problem};
  return std::nullopt;
}

std::optional<Failure> Server::stop() {
  if (std::exchange(stopped_, true)) return std::nullopt;
  std::optional<Failure> failure;
  monitor_.stopping();
  // First: a copy may take hours, and while the disk is in trouble other threads may wait for it.
  if (backups_) backups_->begin_stop();
  // Clients ask the next primary what became of their writes.
  if (endpoints_ && ended_) endpoints_->give_up_replies();
  if (endpoints_) endpoints_->stop();
  if (backups_) backups_->stop();
  if (warm_up_) warm_up_->stop();
  if (disk_fetcher_) disk_fetcher_->stop();
  if (maintenance_) maintenance_->stop();
  if (counter_flusher_) counter_flusher_->stop();
  if (scans_) scans_->stop();
  if (replicator_ && !applier_) {
    if (const Status saved = replicator_->stop(); !saved)
      failure = Failure{kExitOther, to_string(saved.error())};
  }
  if (applier_) {
    constexpr std::int64_t kPatienceMs = 10'000;  // applier_->stop() waits at least as long again
    const CounterCells::Swept ended = counter_flusher_->end(kPatienceMs);
    if (replicator_) (void)replicator_->stop();
    if (const Status saved = applier_->stop(); !saved) {
      failure = Failure{kExitOther, to_string(saved.error())};
    } else if (!ended.status) {
      failure =
          Failure{kExitOther, fmt::format("the last changes of {} one-sided counters are lost: {}",
                                          ended.left, to_string(ended.status.error()))};
    }
  }
  if (engine_) {
    if (const Status closed = engine_->close(); !closed && !failure) {
      failure = Failure{kExitOther, fmt::format("closing the data directory {} failed: {}",
                                                options_.data_dir, to_string(closed.error()))};
    }
  }
  if (ended_ && ended_->has_copy && !failure) failure = install_received_copy();
  monitor_.close();
  if (auto damaged = check_memory(); damaged && !failure) failure = std::move(damaged);
  if (std::exchange(ready_, false) && !failure) {
    log_info(EventName("stopped"), "stopped{}", engine_ ? ": all data is saved" : "");
  }
  return failure;
}

}  // namespace rkv::server
