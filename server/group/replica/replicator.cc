#include "server/group/replica/replicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "common/log.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/thread.h"
#include "server/group/connection/replica_listener.h"
#include "server/group/replica/backup_disk.h"
#include "server/group/replica/backup_links.h"
#include "server/group/replica/configuration_agent.h"
#include "server/group/replica/configuration_note.h"
#include "server/group/replica/copy_pace.h"
#include "server/group/replica/departure.h"
#include "server/group/replica/group_reporter.h"
#include "server/group/replica/group_revocations.h"
#include "server/group/replica/log_sender.h"
#include "server/group/replica/name_check.h"
#include "server/group/replica/primary_link.h"
#include "server/group/replica/removal.h"
#include "server/group/replica/replica_storage.h"
#include "server/group/rules/membership.h"

namespace rkv::server {

namespace {

constexpr auto kTurn = std::chrono::milliseconds(20);
// A replica with a stuck disk waits this long, so that another one can take over or exclude it.
constexpr Nanos kHesitation = 3 * kNanosPerSecond;
// A backup keeps less of the log for replicas that return: it serves none before it is elected.
constexpr std::size_t kShareOfBackups = 2;
// By this factor the log in memory may grow while another replica returns.
constexpr std::size_t kFactorForJoiners = 16;
// Parts of kFactorForJoiners: what clients may write at once when a copy begins, until the copy
// ends, and until the replica has started with it. The rest is for the log before the copy, and for
// entries that are not answered yet.
constexpr std::size_t kFactorAtOnce = 2;
constexpr std::size_t kFactorForCopies = 8;
constexpr std::size_t kFactorForStarts = 14;
// A reading of the clocks costs some system calls.
constexpr Nanos kBetweenReadings = 50 * kNanosPerMs;

std::uint64_t random_epoch() {
  return random_from_kernel() | 1U;
}

std::string describe(const GroupConfiguration& configuration) {
  std::string text;
  for (const Member& member : configuration.members) {
    if (!text.empty()) text += ", ";
    text += member.name;
    if (member.name == configuration.primary) {
      text += " (primary)";
    } else if (!member.in_sync()) {
      text += " (not in sync)";
    }
  }
  return text;
}

}  // namespace

class Replicator::Impl {
 public:
  Impl(Options options, const Parts& parts, const ReplicaStorage::Kept& kept)
      : options_(std::move(options)),
        parts_(parts),
        me_{.name = options_.name, .address = options_.address, .epoch = random_epoch()},
        kept_group_(kept.group),
        has_records_(!kept.history.terms().empty()),
        storage_(parts.engine, kept.history),
        log_(kept.history),
        membership_(log_, me_,
                    {.group = kept.group,
                     .number = kept.number,
                     .term = kept.term,
                     .new_group = options_.may_found ? random_epoch() : 0,
                     .last_has_ended = options_.last_has_ended,
                     .alone_without_store = options_.alone_without_store},
                    options_.times),
        timer_(io_),
        agent_(
            parts.store, parts.clock,
            [this](const ConfigurationStore::Stored& stored, Nanos asked_at) {
              asio::post(io_, [this, stored, asked_at] { configuration_read(stored, asked_at); });
            },
            [this](const Membership::Change& change) {
              asio::post(io_, [this, change] { change_refused(change); });
            }),
        note_([&engine = parts.engine](std::uint64_t number, std::uint32_t term) {
          return ReplicaStorage::note_configuration(engine, number, term);
        }),
        copy_pace_({.at_once = kFactorAtOnce * options_.queue_bytes,
                    .at_its_end = kFactorForCopies * options_.queue_bytes,
                    .when_it_has_started = kFactorForStarts * options_.queue_bytes}),
        reporter_(options_.group, options_.name),
        name_check_(
            io_, me_, options_.secret, [this] { return listener_->port(); }, [this] { pump(); }),
        to_primary_(
            {io_, parts_.clock, membership_, me_, options_.data_dir, options_.secret, parts_.lanes},
            {.has_ended = [this] { return has_ended(); },
             .received =
                 [this](const Wanted& wanted) {
                   disk_->want(wanted);
                   pump();
                 },
             .copied = [this](const std::string& problem) { copied(problem); }}),
        to_backups_(
            {io_, parts_.clock, membership_, me_, options_.data_dir, options_.secret, parts_.lanes},
            parts_.engine,
            {.has_ended = [this] { return has_ended(); },
             .happened = [this](BackupLinks::Event event) { pump(event); },
             .copied =
                 [this](const std::string&, const std::string& problem) {
                   reporter_.copy_sent(problem.empty());
                 }}) {}

  Status start(std::string* problem);
  State state() const;
  std::shared_ptr<const GroupStatus> status() const { return reporter_.latest(); }
  Result<Storage*> take_over();
  void serve(Serving serving);
  void hand_over(const std::string& name, const std::function<void(const Status&)>& done);
  void remove(const std::string& name, const std::function<void(const Status&)>& done);
  void revoke(std::vector<RevokedSecret> secrets, const std::function<void(const Status&)>& done);
  std::shared_ptr<const std::vector<RevokedSecret>> revoked() const {
    const MutexLock lock(mutex_);
    return revoked_;
  }
  Status stop();
  TimeLine time() const {
    const MutexLock lock(mutex_);
    return time_;
  }
  void disk_moved() { wake(); }
  void request(Durability level, std::uint64_t sequence);

  std::shared_ptr<const LoggedOutcomes> outcomes_;  // once taken over
  std::uint64_t group_ = 0;                         // likewise
  std::atomic<bool> lacks_copies_{false};
  ReplicationRounds rounds_{[this] { wake(); }};

 private:
  Nanos now() const { return parts_.clock.now(); }
  void run();
  void turn();
  void wake();
  void pump(BackupLinks::Event event = BackupLinks::Event::kOther);
  void configuration_read(const ConfigurationStore::Stored& stored, Nanos asked_at);
  void change_refused(const Membership::Change& change);
  void tell_of_store();
  void tell_of_wait();
  const char* problem_of_store() const;
  bool has_its_name();
  bool prepare_disk();
  void end(std::string why, bool may_start_again = true);
  bool has_ended() const;
  void publish_primary();
  void publish_revoked();
  void report();

  void follow();
  void copied(const std::string& problem);

  void lead(BackupLinks::Event event);
  void move_time(Primary& primary);
  bool awaits_backups(const Marks& marks) const;
  void look_at_own_disk();
  void limit_log(Primary& primary);
  void make_rounds();
  void show_marks();
  void begin_hand_over(const std::string& name, const Status& etcd,
                       const std::function<void(const Status&)>& done);
  void depart();
  static void tell_of_joiner(const Primary::AwaitedInVain& joiner);
  void shrink_log();
  void append_block(const LogSender::Block& block);

  const Options options_;
  const Parts parts_;
  const Replica me_;
  std::uint64_t kept_group_;
  const bool has_records_;
  ReplicaStorage storage_;
  ReplicaLog log_;
  Membership membership_;
  std::unique_ptr<BackupDisk> disk_;  // until take_over()

  asio::io_context io_{1};
  asio::steady_timer timer_;
  std::unique_ptr<ReplicaListener> listener_;
  ConfigurationAgent agent_;
  ConfigurationNote note_;
  std::thread thread_;
  std::atomic<bool> is_woken_{false};
  bool stopping_ = false;

  // Set while this replica is a serving primary.
  std::optional<Serving> serving_;
  std::unique_ptr<LogSender> sender_;
  std::optional<Departure> departure_;
  std::optional<GroupClock> group_clock_;
  Nanos clocks_read_at_ = 0;
  Removal removal_;
  GroupRevocations revocations_;
  CopyPace copy_pace_;
  std::atomic<std::uint64_t> wanted_wal_{0};
  std::atomic<std::uint64_t> wanted_sync_{0};
  std::uint64_t round_ = 0;  // under way; 0: none
  Nanos round_began_at_ = 0;
  Marks shown_;
  Nanos tick_ = 0;
  Nanos next_tick_ = 0;
  std::string told_;  // the configuration that was logged
  Membership::Misled told_misled_ = Membership::Misled::kNo;
  bool has_told_no_group_ = false;
  bool has_told_wait_ = false;

  GroupReporter reporter_;
  NameCheck name_check_;
  PrimaryLink to_primary_;
  BackupLinks to_backups_;

  mutable Mutex mutex_;
  State state_ RKV_GUARDED_BY(mutex_);
  TimeLine time_ RKV_GUARDED_BY(mutex_);
  std::shared_ptr<const std::vector<RevokedSecret>> revoked_ RKV_GUARDED_BY(mutex_) =
      std::make_shared<const std::vector<RevokedSecret>>();
};

// ---- start and end

Status Replicator::Impl::start(std::string* problem) {
  // The smallest queue that takes any write: log_ keeps what does not fit yet.
  RKV_ASSIGN_OR_RETURN(auto queue, CommitLog::create(CommitLog::kMinServerCapacityBytes,
                                                     CommitLog::Group::kReplicated));
  disk_ = std::make_unique<BackupDisk>(
      storage_, parts_.clock, std::move(queue), log_.last(),
      ApplierOptions{.sync_interval_ms = options_.sync_interval_ms}, [this] { wake(); });
  auto listener = ReplicaListener::listen(
      io_, replica_address(options_.address), options_.secret,
      {.on_connection =
           [this](std::unique_ptr<ReplicaConnection> connection) {
             to_backups_.accept(std::move(connection));
           },
       .on_refusal =
           [](const std::string& why) {
             log_debug(EventName("replica_refused"), "a connection of a replica failed: {}", why);
           }},
      problem);
  if (!listener) return std::unexpected(listener.error());
  listener_ = std::move(*listener);
  thread_ = std::thread([this] { run(); });
  note_.start();
  agent_.start();
  return {};
}

Status Replicator::Impl::stop() {
  agent_.stop();
  if (thread_.joinable()) {
    asio::post(io_, [this] {
      stopping_ = true;
      timer_.cancel();
      listener_.reset();
      name_check_.close();
      to_primary_.close();
      to_backups_.close();
    });
    thread_.join();
  }
  note_.stop();
  if (sender_) sender_->stop();
  return disk_ ? disk_->stop() : Status{};
}

void Replicator::Impl::run() {
  name_thread("rkv-replicate");
  turn();
  io_.run();
}

// Runs at least every kTurn.
void Replicator::Impl::turn() {
  if (stopping_) return;
  timer_.expires_after(kTurn);
  timer_.async_wait([this](const asio::error_code&) { turn(); });
  pump();
  to_backups_.step();
  if (reporter_.is_due(now())) report();
}

// All calls until the replicator's thread runs cause one turn.
void Replicator::Impl::wake() {
  if (is_woken_.exchange(true)) return;
  asio::post(io_, [this] {
    is_woken_.store(false);
    pump();
  });
}

void Replicator::Impl::end(std::string why, bool may_start_again) {
  const MutexLock lock(mutex_);
  if (state_.phase == Phase::kEnded) return;
  state_.phase = Phase::kEnded;
  state_.why = std::move(why);
  state_.may_start_again = may_start_again;
}

Replicator::State Replicator::Impl::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

bool Replicator::Impl::has_ended() const {
  const MutexLock lock(mutex_);
  return state_.phase == Phase::kEnded;
}

// ---- one turn

void Replicator::Impl::configuration_read(const ConfigurationStore::Stored& stored,
                                          Nanos asked_at) {
  if (stopping_) return;
  membership_.read(stored, asked_at, now());
  publish_revoked();
  tell_of_store();
  tell_of_wait();
  const auto& configuration = membership_.configuration();
  name_check_.read(configuration ? &*configuration : nullptr);
  if (configuration) {
    if (std::string text = describe(*configuration); text != told_) {
      told_ = std::move(text);
      log_info(EventName("group_changed"), "the group in term {}: {}",
               field("term", configuration->term), told_);
    }
  }
  pump();
  if (configuration && kept_group_ != 0) note_.write(configuration->number, configuration->term);
}

void Replicator::Impl::tell_of_wait() {
  if (!membership_.waits_for_alone(now()) || std::exchange(has_told_wait_, true)) return;
  log_warn(EventName("waits_for_last"),
           "this replica waits {} s before it serves: the last process of its name was alone in "
           "sync, and may live elsewhere",
           field("seconds", options_.times.wait_for_alone() / kNanosPerSecond));
}

void Replicator::Impl::tell_of_store() {
  if (membership_.lacks_group() && !std::exchange(has_told_no_group_, true)) {
    log_warn(EventName("no_group"),
             "etcd has no group {}: start one replica with --found-group, or check --group and "
             "--etcd",
             field("group", options_.group));
  }
  const Membership::Misled misled = membership_.misled();
  if (misled == std::exchange(told_misled_, misled)) return;
  if (misled == Membership::Misled::kNo)
    return log_info(EventName("etcd_well"), "etcd has this group's configuration again");
  log_error(EventName("etcd_misleads"),
            "etcd has {}: this replica goes on as if etcd did not answer, until the group's newest "
            "configuration is put back and all replicas are started again",
            misled == Membership::Misled::kByAnotherGroup
                ? "another group of this name"
                : "an older configuration of the group than this replica knows");
}

// REQUIRES: no attempt to store the change had an effect.
void Replicator::Impl::change_refused(const Membership::Change& change) {
  if (!stopping_ && membership_.may_give_up(change) && agent_.give_up(change)) {
    membership_.give_up();
    pump();
  }
}

// Returns nullptr if the store answers, stores changes, and has the group's configuration.
const char* Replicator::Impl::problem_of_store() const {
  if (agent_.unanswered_for(now()) != 0) return "etcd does not answer";
  if (membership_.misled() != Membership::Misled::kNo)
    return "etcd has another group of this name, or this group's past";
  if (agent_.unstored_for(now()) != 0)
    return "etcd stores no change: its log and etcdctl alarm list say why";
  return nullptr;
}

// Returns false if the replica must not take part, or not yet.
bool Replicator::Impl::has_its_name() {
  if (name_check_.verdict() == NameCheck::Verdict::kTaken) {
    end(fmt::format(
            "the name {} belongs to the replica at {}, which answers: give this one another "
            "--name, or stop that one",
            me_.name, name_check_.taken_by()),
        false);
  }
  return name_check_.verdict() == NameCheck::Verdict::kFree;
}

// REPL-1. Returns false if the replica must not take part.
bool Replicator::Impl::prepare_disk() {
  const std::uint64_t group = membership_.group();
  if (kept_group_ == group || group == 0) return true;
  if (has_records_ && !membership_.is_only_member()) {
    end(fmt::format("the data directory holds records of a server that was in no group: only the "
                    "first replica of a group may begin with records; give {} an empty --data-dir",
                    me_.name),
        false);
    return false;
  }
  if (const Status joined = storage_.join(group); !joined) {
    end(fmt::format("the database cannot note its group: {}", to_string(joined.error())));
    return false;
  }
  kept_group_ = group;
  return true;
}

void Replicator::Impl::pump(BackupLinks::Event event) {
  if (stopping_ || has_ended()) return;
  if (!has_its_name()) return agent_.want(std::nullopt);
  membership_.set_store_answers(problem_of_store() == nullptr);
  const auto change = membership_.wanted(now());
  if (membership_.role() == Membership::Role::kEnded) {
    agent_.want(std::nullopt);
    return end(membership_.why_ended(), membership_.may_start_again());
  }
  if (!prepare_disk()) return;
  agent_.want(change);
  if (membership_.role() == Membership::Role::kStarting) return;
  membership_.primary() != nullptr ? lead(event) : follow();
  shrink_log();
  publish_primary();
}

// Keeps the end of the log in memory: a replica that was away for a while catches up from it.
// Entries that a returning replica needs are kept longer.
void Replicator::Impl::shrink_log() {
  const std::uint64_t on_disk =
      disk_ ? disk_->through().sync : std::min(shown_.sync, shown_.replicated);
  log_.shrink(kFactorForJoiners * options_.queue_bytes, on_disk);
  if (to_backups_.log_is_awaited()) return;
  const Primary* const primary = membership_.primary();
  const std::uint64_t needed = primary != nullptr ? primary->needed_after() : on_disk;
  const std::size_t share = primary != nullptr ? 1 : kShareOfBackups;
  log_.shrink(options_.queue_bytes / share, std::min(on_disk, needed));
}

// For the server of a backup, which directs its clients to the primary.
void Replicator::Impl::publish_primary() {
  const Primary* const primary = membership_.primary();
  const Member* const other = membership_.primary_member();  // nullptr: this replica, or not known
  const std::string_view address = primary != nullptr ? std::string_view(me_.address)
                                   : other != nullptr ? std::string_view(other->address)
                                                      : std::string_view();
  const MutexLock lock(mutex_);
  if (state_.primary != address) state_.primary = address;
}

// Call it before anybody can see that the same configuration elects this replica.
void Replicator::Impl::publish_revoked() {
  const auto& configuration = membership_.configuration();
  if (!configuration || configuration->revoked == *revoked()) return;
  auto made = std::make_shared<const std::vector<RevokedSecret>>(configuration->revoked);
  const MutexLock lock(mutex_);
  revoked_ = std::move(made);
}

void Replicator::Impl::report() {
  GroupStatus status = reporter_.describe(membership_, log_, now());
  if (const State ended = state(); ended.phase == Phase::kEnded) {
    status.role = GroupStatus::Role::kEnded;
    status.why_ended = ended.why;
  }
  status.is_serving = status.is_serving && serving_;
  status.connections = to_backups_.count();
  if (membership_.role() == Membership::Role::kFollowing)
    status.may_lead = membership_.backup().may_lead();
  status.is_connected = to_primary_.is_connected();
  const Nanos misled_since = membership_.misled_since();
  status.etcd_silent_for =
      std::max(agent_.unanswered_for(now()),
               misled_since == 0 ? 0 : std::max<Nanos>(now() - misled_since, 1));
  status.etcd_refuses_for = agent_.unstored_for(now());
  status.etcd_has_lost_data =
      agent_.has_lost_data() || membership_.misled() == Membership::Misled::kByThePast;
  status.etcd_has_another = membership_.misled() == Membership::Misled::kByAnotherGroup;
  status.lacks_group = membership_.lacks_group();
  reporter_.add_copies(status, to_backups_.copies(), to_primary_.copy());
  if (disk_) GroupReporter::add_disk(status, *disk_, now());
  reporter_.publish(std::move(status));
}

// ---- a backup

void Replicator::Impl::follow() {
  Backup& backup = membership_.backup();
  disk_->feed(log_, backup.marks().replicated);
  const BackupDisk::Through through = disk_->through();
  backup.on_disk(through.wal, through.sync);
  // A disk that takes nothing must not let the log grow: the primary sends kMostUnwritten beyond
  // what the disk has. So this replica disconnects. It then leaves the set of replicas in sync, and
  // returns when its disk has caught up.
  const std::size_t kept = log_.kept_bytes();
  const bool is_behind = kept > Primary::kMostUnwritten + 4 * options_.queue_bytes;
  const bool has_failed = disk_->has_failed(now());
  if (is_behind || has_failed) membership_.hesitate(now() + kHesitation);
  backup.set_may_lead(!has_failed && parts_.may_lead());
  if (is_behind) to_primary_.drop("the disk of this replica is too far behind");
  if (disk_->is_given_up(now())) to_primary_.drop("the disk of this replica takes nothing");
  to_primary_.step(!has_failed && kept <= 2 * options_.queue_bytes);
}

void Replicator::Impl::copied(const std::string& problem) {
  if (!problem.empty()) {
    reporter_.copy_not_received();
    log_warn(EventName("copy_failed"), "the primary's database was not copied: {}", problem);
    return;
  }
  {
    const MutexLock lock(mutex_);
    state_.has_copy = true;
  }
  end("it has received a copy of the primary's database");
}

// ---- a primary

void Replicator::Impl::lead(BackupLinks::Event event) {
  to_primary_.end("this replica is the primary");
  Primary& primary = *membership_.primary();
  move_time(primary);
  primary.want({.wal = std::max(wanted_wal_.load(), primary.inherited()),
                .sync = std::max(wanted_sync_.load(), primary.inherited())});
  look_at_own_disk();
  limit_log(primary);
  if (serving_) make_rounds();
  if (departure_) depart();
  removal_.step(primary);
  if (const auto joiner = primary.take_awaited_in_vain()) tell_of_joiner(*joiner);
  revocations_.step(primary, now());
  lacks_copies_.store(primary.configuration().in_sync_count() < options_.min_copies);
  // Waiting clients come first: new entries raise no mark before backups answer them.
  if (serving_) show_marks();
  if (event != BackupLinks::Event::kAnswer || awaits_backups(primary.marks())) to_backups_.send();
  if (serving_) return;
  if (disk_ == nullptr || !membership_.acts(now()) || !primary.has_settled() ||
      disk_->through().wal < primary.inherited() || primary.marks().sync < primary.inherited())
    return;
  const MutexLock lock(mutex_);
  if (state_.phase != Phase::kFollowing) return;
  // Phase and term change under one lock: the server reads the term as soon as it sees the phase.
  state_.phase = Phase::kElected;
  state_.term = primary.configuration().term;
}

// A pause follows each such wait, so these log lines are few.
void Replicator::Impl::tell_of_joiner(const Primary::AwaitedInVain& joiner) {
  log_info(
      EventName("joiner_not_in_sync"),
      "writes waited {} ms so that {} is in sync again, and it is not: {} ({} bytes of the log "
      "and {} bytes on its disk are missing, and a round trip to its disk takes {} ms)",
      field("waited_ms", joiner.waited / kNanosPerMs), field("replica", joiner.name),
      field("why", joiner.why), field("lacks_bytes", joiner.lacks_bytes),
      field("disk_lacks_bytes", joiner.disk_lacks_bytes),
      field("round_trip_ms", joiner.round_trip / kNanosPerMs));
}

void Replicator::Impl::move_time(Primary& primary) {
  const Nanos time = now();
  if (!group_clock_ || time - clocks_read_at_ >= kBetweenReadings) {
    clocks_read_at_ = time;
    const GroupClock::Reading reading = parts_.read_clocks();
    if (!group_clock_) group_clock_.emplace(reading, membership_.backup().time().by_clock(time));
    if (const std::int64_t step = group_clock_->follow(reading); step != 0) {
      log_warn(EventName("clock_set"),
               "the wall clock was adjusted by {} s: keys expire by the new time",
               field("seconds", static_cast<double>(step) / 1e3));
    }
  }
  primary.propose_time(group_clock_->unix_ms(now()), now());
  const MutexLock lock(mutex_);
  time_ = primary.time();
}

void Replicator::Impl::limit_log(Primary& primary) {
  const EngineCopySender* const copies = to_backups_.copies();
  if (copies == nullptr) return;
  const EngineCopySender::Progress copy = copies->progress();
  primary.limit_log(copy_pace_.limit(
      {.replica = copy.replica, .bytes = copy.bytes, .total = copy.total_bytes},
      to_backups_.awaits_start(copy_pace_.replica()), log_.appended_bytes(), now()));
}

void Replicator::Impl::look_at_own_disk() {
  Primary& primary = *membership_.primary();
  if (disk_ != nullptr) {
    disk_->feed(log_, primary.marks().replicated);
    disk_->want({.wal = primary.inherited(), .sync = primary.inherited()});
    const BackupDisk::Through through = disk_->through();
    primary.on_disk(through.wal, through.sync);
    primary.set_unfit(disk_->has_failed(now()), now());
  } else if (serving_) {
    const std::uint64_t sync = serving_->log.sync_mark();  // first: it never passes the other
    const std::uint64_t wal = serving_->log.wal_mark();
    primary.on_disk(Version::of(serving_->term, wal).bits, Version::of(serving_->term, sync).bits);
    const bool is_fit = !serving_->log.failed() && !serving_->disk_hangs() && parts_.may_lead();
    primary.set_unfit(!is_fit, now());
    serving_->log.set_successor(primary.may_have_successor(now()));
  }
}

// Whether sending the marks now unblocks a client. If not, they go with the next entries or in the
// next turn. A message for each write of a client, and its answer, would delay the writes behind.
bool Replicator::Impl::awaits_backups(const Marks& marks) const {
  return !serving_ || round_ != 0 || marks.wal < wanted_wal_.load() ||
         marks.sync < wanted_sync_.load();
}

// REPL-3, REPL-4.
void Replicator::Impl::show_marks() {
  Primary& primary = *membership_.primary();
  const Marks& marks = primary.marks();
  const bool has_risen = marks != shown_;
  if (has_risen) {
    shown_ = marks;
    CommitLog& log = serving_->log;
    log.set_replicated_mark(sender_->sequence_of(marks.replicated));
    const std::uint64_t wal = std::min(sender_->sequence_of(marks.wal), log.replicated_mark());
    log.set_group_marks(wal, std::min(sender_->sequence_of(marks.sync), wal));
    sender_->forget(marks.sync);
  }
  const Nanos tick = now();
  const bool is_due = tick >= next_tick_ && tick_ != kGivenUp;
  if (is_due) {
    if (membership_.acts(tick) && primary.covers(tick)) tick_ = tick;
    next_tick_ = tick + options_.times.lease / 10;
  }
  // Shown before any answer: a client that has an answer must not READ an older mark.
  if (is_due || has_risen) serving_->show(tick_, {marks.replicated});
  if (has_risen) serving_->marks_changed();
}

void Replicator::Impl::append_block(const LogSender::Block& block) {
  if (stopping_ || has_ended()) return;
  storage_.note_block(block.last);
  log_.append(block.last, block.bytes);
  membership_.primary()->update();
  pump();
}

// ---- calls of the server

// The replicator's thread hands the disk over at once and continues its heartbeats.
Result<Storage*> Replicator::Impl::take_over() {
  std::promise<std::unique_ptr<BackupDisk>> given;
  asio::post(io_, [this, &given] { given.set_value(std::move(disk_)); });
  std::unique_ptr<BackupDisk> disk = given.get_future().get();
  RKV_RETURN_IF_ERROR(disk->stop());
  const BackupDisk::Through through = disk->through();
  std::promise<void> noted;
  asio::post(io_, [this, &through, &noted] {
    if (membership_.primary() != nullptr) membership_.primary()->on_disk(through.wal, through.sync);
    group_ = kept_group_;
    noted.set_value();
  });
  noted.get_future().get();
  outcomes_ = disk->outcomes();
  storage_.claims_versions();
  return &storage_;
}

void Replicator::Impl::serve(Serving serving) {
  sender_ =
      std::make_unique<LogSender>(serving.log, serving.term, [this](const LogSender::Block& block) {
        asio::post(io_, [this, block] {
          sender_->taken(block);
          append_block(block);
        });
      });
  asio::post(io_, [this, serving = std::move(serving)]() mutable {
    serving_.emplace(std::move(serving));
    departure_.emplace(Departure::Outside{
        .close =
            [this](const std::string& primary) {
              serving_->close(primary);
              serving_->show(kGivenUp, {shown_.replicated});
            },
        .is_quiet = [this] { return serving_->is_quiet(); },
        .tell = [this](std::uint64_t peer,
                       const HandOver& message) { to_backups_.tell(peer, message); }});
    sender_->start();
    {
      const MutexLock lock(mutex_);
      if (state_.phase == Phase::kElected) state_.phase = Phase::kServing;
    }
    pump();
  });
}

// ---- hand-over

// A successor must be able to store in etcd that it is the primary, or nobody serves. So etcd is
// asked first.
void Replicator::Impl::hand_over(const std::string& name,
                                 const std::function<void(const Status&)>& done) {
  agent_.ask([this, name, done](const Status& etcd) { begin_hand_over(name, etcd, done); });
}

void Replicator::Impl::begin_hand_over(const std::string& name, const Status& etcd,
                                       const std::function<void(const Status&)>& done) {
  asio::post(io_, [this, name, etcd, done] {
    Primary* const primary = membership_.primary();
    if (stopping_ || primary == nullptr || !departure_ || !membership_.acts(now()))
      return done(fail(Code::kNotPrimary, "this replica is not the primary"));
    if (!etcd) return done(etcd);
    if (const char* const problem = problem_of_store()) return done(fail(Code::kBusy, problem));
    const Status begun = departure_->begin(*primary, name, now());
    if (begun) depart();
    done(begun);
  });
}

void Replicator::Impl::remove(const std::string& name,
                              const std::function<void(const Status&)>& done) {
  asio::post(io_, [this, name, done] {
    Primary* const primary = membership_.primary();
    if (stopping_ || primary == nullptr || !membership_.acts(now()))
      return done(fail(Code::kNotPrimary, "this replica is not the primary"));
    if (const char* const problem = problem_of_store()) return done(fail(Code::kBusy, problem));
    if (primary->configuration().find(name) != nullptr && to_backups_.is_copying_to(name))
      return done(
          fail(Code::kConflict,
               "it gets a copy of the database, and would be a member again: stop it first"));
    removal_.begin(*primary, name, done);
    pump();
  });
}

void Replicator::Impl::revoke(std::vector<RevokedSecret> secrets,
                              const std::function<void(const Status&)>& done) {
  asio::post(io_, [this, secrets = std::move(secrets), done]() mutable {
    Primary* const primary = membership_.primary();
    if (stopping_ || primary == nullptr || !membership_.acts(now()))
      return done(fail(Code::kNotPrimary, "this replica is not the primary"));
    revocations_.begin(*primary, std::move(secrets), done, now());
    pump();
  });
}

void Replicator::Impl::depart() {
  if (!departure_->is_under_way()) return;
  departure_->step(*membership_.primary(), now());
  if (departure_->is_closed()) tick_ = kGivenUp;
  {
    const MutexLock lock(mutex_);
    state_.is_handing_over = departure_->is_under_way();
  }
  if (departure_->has_failed(now())) end("no replica was there to hand over to");
}

void Replicator::Impl::make_rounds() {
  Primary& primary = *membership_.primary();
  while (true) {
    if (round_ == 0) {
      if (!rounds_.is_wanted()) return;
      round_ = rounds_.begin();
      round_began_at_ = now();
      primary.begin_round();
    }
    if (primary.heard_since() < round_began_at_ || primary.lease_until() <= now()) return;
    rounds_.complete(std::exchange(round_, 0));
    serving_->marks_changed();
  }
}

void Replicator::Impl::request(Durability level, std::uint64_t sequence) {
  if (level == Durability::kMemory || !sender_) return;
  const std::uint64_t version = Version::of(sender_->term(), sequence).bits;
  std::atomic<std::uint64_t>& wanted = level == Durability::kWal ? wanted_wal_ : wanted_sync_;
  std::uint64_t before = wanted.load(std::memory_order_relaxed);
  while (before < version && !wanted.compare_exchange_weak(before, version)) {
  }
  if (before < version) wake();
}

// ---- Replicator

Result<std::unique_ptr<Replicator>> Replicator::create(Options options, const Parts& parts) {
  RKV_ASSIGN_OR_RETURN(const auto kept, ReplicaStorage::kept_in(parts.engine));
  return std::unique_ptr<Replicator>(
      new Replicator(std::make_unique<Impl>(std::move(options), parts, kept)));
}

Replicator::Replicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Replicator::~Replicator() {
  (void)stop();
}

Status Replicator::start(std::string* problem) {
  return impl_->start(problem);
}
Replicator::State Replicator::state() const {
  return impl_->state();
}
std::shared_ptr<const GroupStatus> Replicator::status() const {
  return impl_->status();
}
Result<Storage*> Replicator::take_over() {
  return impl_->take_over();
}
std::shared_ptr<const LoggedOutcomes> Replicator::outcomes() const {
  return impl_->outcomes_;
}
std::uint32_t Replicator::group() const {
  return static_cast<std::uint32_t>(impl_->group_);
}
void Replicator::serve(Serving serving) {
  impl_->serve(std::move(serving));
}
void Replicator::hand_over(const std::string& name,
                           const std::function<void(const Status&)>& done) {
  impl_->hand_over(name, done);
}
void Replicator::remove(const std::string& name, const std::function<void(const Status&)>& done) {
  impl_->remove(name, done);
}
void Replicator::revoke(std::vector<RevokedSecret> secrets,
                        const std::function<void(const Status&)>& done) {
  impl_->revoke(std::move(secrets), done);
}
std::shared_ptr<const std::vector<RevokedSecret>> Replicator::revoked() const {
  return impl_->revoked();
}
Status Replicator::stop() {
  return impl_->stop();
}
void Replicator::disk_moved() {
  impl_->disk_moved();
}
void Replicator::request(Durability level, std::uint64_t sequence) {
  impl_->request(level, sequence);
}
TimeLine Replicator::time() const {
  return impl_->time();
}
const std::atomic<bool>& Replicator::lacks_copies() const {
  return impl_->lacks_copies_;
}
ReplicationRounds& Replicator::rounds() {
  return impl_->rounds_;
}

}  // namespace rkv::server
