#include "tests/sim/group/group_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/bytes.h"

namespace rkv::sim {

namespace {

using server::LogPosition;
using server::Membership;

constexpr std::uint64_t kGroup = 77;
// Numbers of entries that a log keeps although all have synced them.
constexpr std::size_t kKept = 20;
// As of the replicator: it looks at its clocks this often.
constexpr Nanos kTurn = 20 * kNanosPerMs;
// As of the agent: so long after etcd stored nothing it is asked again whether it does.
constexpr Nanos kTryStoringAfter = kNanosPerSecond;
// A disk that takes nothing for a while, once in so many turns.
constexpr std::uint64_t kSticksIn = 300;
constexpr Nanos kSticks = 2 * kNanosPerSecond;
constexpr std::int64_t kBeganMs = 1'795'000'000'000;
// How much the wall clocks of hosts that are well differ.
constexpr std::uint64_t kWallsDifferMs = 400;

server::EntryBytes bytes_of(const Write& write) {
  auto bytes = std::make_shared<std::vector<std::byte>>(16);
  store_le(bytes->data(), write.ordinal);
  store_le(bytes->data() + 8, write.id);
  return bytes;
}

Write write_of(const server::EntryBytes& bytes) {
  return {.ordinal = load_le<std::uint64_t>(bytes->data()),
          .id = load_le<std::uint64_t>(bytes->data() + 8)};
}

}  // namespace

GroupHost::GroupHost(std::size_t number, rdma::sim::Scheduler& scheduler, Etcd& etcd,
                     const GroupPlan& plan, Outside outside)
    : number_(number),
      scheduler_(scheduler),
      plan_(plan),
      outside_(std::move(outside)),
      store_(etcd.connect(number)),
      drift_ppm_(static_cast<std::int64_t>(scheduler.random().below(9'000)) - 4'500),
      offset_(scheduler.up_to(1000 * kNanosPerSecond) + kNanosPerSecond),
      wall_off_ms_(static_cast<std::int64_t>(scheduler.random().below(kWallsDifferMs))) {}

void GroupHost::start() {
  epoch_ = scheduler_.random()() | 1U;
  server::TermHistory history;
  image_ = engine_;
  for (const Stored& each : engine_)
    history.extend(each.position);
  log_ = std::make_unique<server::ReplicaLog>(history);
  membership_ =
      std::make_unique<Membership>(*log_,
                                   server::Replica{.name = fmt::format("n{}", number_),
                                                   .address = fmt::format("n{}:1", number_),
                                                   .epoch = epoch_},
                                   server::Membership::Start{.group = engine_group_,
                                                             .number = engine_number_,
                                                             .term = engine_term_,
                                                             .new_group = number_ == 0 ? kGroup : 0,
                                                             .last_has_ended = true},
                                   server::ReplicationTimes{});
  change_.reset();
  is_refused_ = false;
  try_storing_at_ = 0;
  unknown_ = -1;
  inbox_.clear();
  peers_.clear();
  link_ = 0;
  succession_ = {};
  group_clock_.reset();
  wall_shifted_until_ = 0;
  time_began_with_ = 0;
  admits_ = false;
  next_version_ = replicated_ = shown_mark_ = 0;
  tick_ = 0;
}

void GroupHost::kill() {
  outside_.ended(number_);
  membership_.reset();
  log_.reset();
  admits_ = false;
  engine_.resize(engine_wal_);
  engine_wal_ = engine_sync_ = engine_.size();
}

// A server that ends by itself stops in good order: what is replicated reaches its disk.
void GroupHost::end() {
  while (engine_.size() < image_.size() && image_[engine_.size()].position.version <= replicated_)
    engine_.push_back(image_[engine_.size()]);
  engine_wal_ = engine_.size();
  kill();
}

void GroupHost::mend_disk() {
  is_mended_ = true;
  sticks_until_ = 0;
}

void GroupHost::replace_engine(const GroupHost& other) {
  kill();
  engine_ = other.engine_;
  engine_.resize(other.engine_wal_);
  engine_wal_ = engine_sync_ = engine_.size();
  ++copies_;
  start();
}

void GroupHost::receive(const Arrival& arrival) {
  const Nanos now = local(scheduler_.now());
  if (server::Primary* const primary = membership_->primary(); primary != nullptr) {
    if (arrival.is_end) {
      primary->disconnected(arrival.link);
      std::erase(peers_, arrival.link);
    } else if (arrival.hello) {
      peers_.push_back(arrival.link);
      if (primary->connected(arrival.link, *arrival.hello, now) !=
          server::Primary::Admission::kAccepted)
        return outside_.close(arrival.link);
      if (plan_.broken == BrokenRule::kJoinsUnreached)
        primary->set_reachable(arrival.link, true);
      else
        outside_.call_back(arrival.link);
    } else if (arrival.is_reachable) {
      primary->set_reachable(arrival.link, *arrival.is_reachable);
    } else if (arrival.answer && !primary->answered(arrival.link, *arrival.answer, now)) {
      outside_.close(arrival.link);
    }
    return;
  }
  if (arrival.hello) return outside_.close(arrival.link);  // not the primary
  if (arrival.link != link_ || link_ == 0) return;
  if (arrival.is_end) {
    link_ = 0;
    return;
  }
  if (arrival.hand_over && !membership_->backup().receive(*arrival.hand_over))
    return outside_.close(arrival.link);
  if (!arrival.entries) return;
  if (!membership_->backup().receive(*arrival.entries, now)) {
    outside_.close(link_);
    link_ = 0;
    connect_again_at_ = scheduler_.now() + 50 * kNanosPerMs;
    return;
  }
  time_began_with_ = arrival.time_began_with;
  // The log may have been cut.
  while (!image_.empty() && image_.back().position > arrival.entries->previous)
    image_.pop_back();
  if (const auto& block = arrival.entries->block)
    image_.push_back({.position = block->last, .write = write_of(block->bytes)});
}

// The engine takes only entries at or below the mark.
void GroupHost::apply() {
  std::uint64_t mark = membership_->primary() != nullptr
                           ? membership_->primary()->marks().replicated
                           : membership_->backup().marks().replicated;
  replicated_ = mark;
  if (plan_.broken == BrokenRule::kDiskAboveMark) mark = log_->last().version;
  // A cut that reaches into the engine happens in a broken run only.
  while (!engine_.empty() && (engine_.size() > image_.size() ||
                              engine_.back().position != image_[engine_.size() - 1].position))
    engine_.pop_back();
  // An engine is behind by what it has not got round to.
  if (!is_mended_ && scheduler_.chance(kSticksIn))
    sticks_until_ = scheduler_.now() + scheduler_.up_to(kSticks);
  for (std::uint64_t most = sticks_until_ > scheduler_.now() ? 0 : scheduler_.random().below(3);
       most != 0 && engine_.size() < image_.size() &&
       image_[engine_.size()].position.version <= mark;
       --most)
    engine_.push_back(image_[engine_.size()]);
  engine_wal_ = std::min(engine_wal_, engine_.size());
  engine_sync_ = std::min(engine_sync_, engine_wal_);
  if (scheduler_.chance(3)) engine_wal_ = engine_.size();
  if (scheduler_.chance(10)) engine_sync_ = engine_wal_;
  const auto version_at = [this](std::size_t count) {
    return count == 0 ? 0 : engine_[count - 1].position.version;
  };
  const std::uint64_t wal = version_at(engine_wal_);
  const std::uint64_t sync = version_at(engine_sync_);
  if (membership_->primary() != nullptr)
    membership_->primary()->on_disk(wal, sync);
  else
    membership_->backup().on_disk(wal, sync);
  if (engine_sync_ > kKept) log_->release(engine_[engine_sync_ - kKept].position.version);
}

void GroupHost::follow() {
  const server::Member* const primary = membership_->primary_member();
  if (link_ == 0 && primary != nullptr && scheduler_.now() >= connect_again_at_) {
    link_ = outside_.connect(number_, primary->name);
    connect_again_at_ = scheduler_.now() + 100 * kNanosPerMs;
    if (link_ != 0)
      outside_.send(number_, link_, {.link = link_, .hello = membership_->backup().hello()});
  }
  if (link_ == 0) return;
  auto answer = membership_->backup().answer(local(scheduler_.now()));
  if (!answer) return;
  if (plan_.broken == BrokenRule::kAnswersUnwritten) answer->wal = answer->last.version;
  outside_.send(number_, link_, {.link = link_, .answer = answer});
}

// In one step, so that the order of clock, lease and line (rule T_AFTER_LOOK) is not tested here.
void GroupHost::tick() {
  server::Primary& primary = *membership_->primary();
  const Nanos t = local(scheduler_.now());
  const bool has_lease = primary.lease_until() > t + server::ReplicationTimes{}.window;
  if (primary.covers(t) || plan_.broken == BrokenRule::kTickIgnoresLease ||
      (plan_.broken == BrokenRule::kTicksOn && has_lease))
    tick_ = t;
}

void GroupHost::hand_over() {
  if (!serves() || is_paused() || membership_->primary() == nullptr) return;
  (void)succession_.begin(*membership_->primary(), {}, local(scheduler_.now()));
}

// Clients have their answers at once here, or never.
void GroupHost::succeed() {
  server::Primary& primary = *membership_->primary();
  const Nanos now = local(scheduler_.now());
  const bool is_early = plan_.broken == BrokenRule::kHandsOverEarly && succession_.is_under_way() &&
                        !primary.has_handed_over();
  auto told = succession_.step(primary, now, scheduler_.chance(2));
  if (is_early) {
    if (const auto next = primary.successor({}, now))
      told = {.peer = next->peer, .message = {.term = primary.configuration().term}};
  }
  if (!told) return;
  ++handed_over_;
  outside_.send(number_, told->peer, {.link = told->peer, .hand_over = told->message});
}

std::int64_t GroupHost::wall_ms() const {
  return kBeganMs + wall_off_ms_ + (scheduler_.now() / kNanosPerMs) +
         (scheduler_.now() < wall_shifted_until_ ? wall_shifted_ms_ : 0);
}

// As the replicator.
void GroupHost::move_time(server::Primary& primary) {
  const Nanos now = local(scheduler_.now());
  const server::GroupClock::Reading reading{.clock = now, .since_boot = now, .unix_ms = wall_ms()};
  if (!group_clock_) {
    std::uint64_t known = membership_->backup().time().by_clock(now);
    if (known == 0) time_began_with_ = epoch_;
    if (known != 0 && plan_.broken == BrokenRule::kTimeBeginsAhead) known += 2000;
    if (plan_.broken == BrokenRule::kTimeByOwnWall) known = 0;
    group_clock_.emplace(reading, known);
  }
  (void)group_clock_->follow(reading);
  primary.propose_time(plan_.broken == BrokenRule::kFollowsWallClock
                           ? static_cast<std::uint64_t>(reading.unix_ms)
                           : group_clock_->unix_ms(now),
                       now);
}

std::uint64_t GroupHost::judges_by() const {
  if (!serves() || is_paused() || membership_->primary() == nullptr) return 0;
  const Nanos now = local(scheduler_.now());
  return membership_->primary()->time().at(now);
}

std::uint64_t GroupHost::begins_by() const {
  if (judges_by() == 0) return 0;
  return static_cast<std::uint64_t>(membership_->primary()->time().begins_at_0 +
                                    (local(scheduler_.now()) / kNanosPerMs) + 1);
}

void GroupHost::lead() {
  server::Primary& primary = *membership_->primary();
  move_time(primary);
  for (const std::uint64_t peer : std::vector(peers_)) {
    while (auto entries = primary.next(peer, local(scheduler_.now())))
      outside_.send(
          number_, peer,
          {.link = peer, .entries = std::move(entries), .time_began_with = time_began_with_});
    if (primary.needs_copy(peer)) outside_.copy_engine(number_, peer);
  }
  const bool acts =
      membership_->acts(local(scheduler_.now())) || plan_.broken == BrokenRule::kActsAtOnce;
  const bool has_engine = engine_.empty() ? primary.inherited() == 0
                                          : engine_.back().position.version >= primary.inherited();
  // Its time waits for the same moment: that is left out too.
  const bool has_settled =
      primary.has_settled() || (plan_.broken == BrokenRule::kActsAtOnce &&
                                primary.marks().replicated >= primary.inherited());
  if (!admits_ && acts &&
      ((has_settled && has_engine) || plan_.broken == BrokenRule::kAdmitsAtOnce)) {
    admits_ = true;
    inherited_ = primary.inherited();
    next_version_ = std::max<std::uint64_t>(std::uint64_t{primary.configuration().term} << 32U,
                                            log_->last().version) +
                    8;
  }
  replicated_ = primary.marks().replicated;
  shown_mark_ = plan_.answers_from_memory() ? primary.marks().replicated : primary.marks().wal;
  succeed();
  if (acts) tick();
}

void GroupHost::step() {
  if (!lives() || is_paused()) return;
  while (!inbox_.empty() && lives()) {
    const Arrival arrival = std::move(inbox_.front());
    inbox_.pop_front();
    if (membership_->role() != Membership::Role::kStarting)
      receive(arrival);
    else if (arrival.hello)
      outside_.close(arrival.link);
  }
  if (!lives()) return;
  if (succession_.has_failed(local(scheduler_.now()))) {
    end();
    return start();
  }
  membership_->set_store_answers(!is_refused_);
  change_ = membership_->wanted(local(scheduler_.now()));
  if (change_ && plan_.broken == BrokenRule::kLosesRevoked && membership_->configuration() &&
      change_->next.revoked == membership_->configuration()->revoked)
    change_->next.revoked.clear();
  engine_group_ = membership_->group();
  if (membership_->role() == Membership::Role::kEnded) {
    end();
    return start();
  }
  if (membership_->role() == Membership::Role::kStarting) return;
  if (membership_->primary() != nullptr && link_ != 0) {
    outside_.close(link_);
    link_ = 0;
  }
  apply();
  membership_->primary() != nullptr ? lead() : follow();
}

// Entries on their way to the disk proceed without a message. Syncs also proceed with the turns.
bool GroupHost::has_work() const {
  return !inbox_.empty() || (lives() && engine_wal_ != image_.size());
}

void GroupHost::wait_for_work() {
  const Nanos until = std::max(scheduler_.now() + kTurn, paused_until_);
  if (!lives() || is_paused() || !has_work()) scheduler_.park(work_, until);
  scheduler_.sleep(kNanosPerMs + scheduler_.up_to(3 * kNanosPerMs));
}

void GroupHost::step_of_etcd() {
  if (!lives() || is_paused()) return scheduler_.sleep(10 * kNanosPerMs);
  const std::uint64_t epoch = epoch_;
  const Nanos asked_at = local(scheduler_.now());
  // A process that is paused sees what it has read when it goes on.
  const auto see = [&](const server::ConfigurationStore::Stored& stored) {
    while (is_paused())
      scheduler_.sleep(10 * kNanosPerMs);
    if (!lives() || epoch_ != epoch) return;
    membership_->read(stored, asked_at, local(scheduler_.now()));
    if (const auto& configuration = membership_->configuration()) {
      engine_number_ = configuration->number;
      engine_term_ = configuration->term;
    }
    scheduler_.notify(work_);
  };
  if (const auto change = change_) {
    const auto revision =
        store_->replace(change->revision, change->next, Deadline::after_ms(scheduler_, 300));
    if (revision) return see({.configuration = change->next, .revision = *revision});
    if (!lives() || epoch_ != epoch) return;
    note_failure(*change, revision.error());
  } else if (is_refused_ && scheduler_.now() >= try_storing_at_) {
    try_storing_at_ = scheduler_.now() + kTryStoringAfter;
    is_refused_ = !store_->try_storing(Deadline::after_ms(scheduler_, 200));
    if (!lives() || epoch_ != epoch) return;
  }
  const auto read =
      change_ || membership_->revision() == 0
          ? store_->read(Deadline::after_ms(scheduler_, 200))
          : store_->wait_for_other(membership_->revision(), Deadline::after_ms(scheduler_, 100));
  if (read) see(*read);
  scheduler_.sleep(5 * kNanosPerMs);
}

// As ConfigurationAgent and Replicator.
void GroupHost::note_failure(const Membership::Change& change, const Error& error) {
  if (error.code == Code::kConflict) {
    is_refused_ = false;
    return;
  }
  is_refused_ = true;
  const bool has_no_effect = error.write == WriteOutcome::kNotApplied;
  if (!has_no_effect) unknown_ = change.revision;
  const bool may_be_stored = !has_no_effect || unknown_ == change.revision;
  if (may_be_stored || !membership_->may_give_up(change)) return;
  membership_->give_up();
  change_.reset();
}

std::optional<std::uint64_t> GroupHost::write(std::uint64_t id) {
  if (!serves() || is_paused() || membership_->primary() == nullptr) return std::nullopt;
  if (succession_.is_closed()) return std::nullopt;
  const Write write{.ordinal = image_.empty() ? 1 : image_.back().write.ordinal + 1, .id = id};
  const LogPosition position{.term = membership_->primary()->configuration().term,
                             .version = next_version_};
  next_version_ += 8;
  log_->append(position, bytes_of(write));
  image_.push_back({.position = position, .write = write});
  membership_->primary()->update();
  scheduler_.notify(work_);
  return position.version;
}

bool GroupHost::revoke(const RevokedSecret& secret) {
  if (!serves() || is_paused() || membership_->primary() == nullptr) return false;
  return membership_->primary()->revoke({&secret, 1}).has_value();
}

bool GroupHost::has_answered(const RevokedSecret& secret, std::uint64_t epoch) const {
  if (!lives() || epoch_ != epoch || is_paused() || membership_->primary() == nullptr) return false;
  if (plan_.broken == BrokenRule::kAnswersRevoked) return true;
  return membership_->primary()->configuration().has_revoked(secret);
}

bool GroupHost::has_answered(std::uint64_t version, std::uint64_t epoch) const {
  if (!lives() || epoch_ != epoch || is_paused()) return false;
  if (plan_.broken == BrokenRule::kAnswersAtOnce) return true;
  return version <= shown_mark_;
}

// A new primary's memory has what is in its engine, and the writes of its own term.
Write GroupHost::newest_at(std::uint64_t version) const {
  const auto newest_of = [version](const std::vector<Stored>& all) {
    const auto behind = std::ranges::upper_bound(
        all, version, {}, [](const Stored& each) { return each.position.version; });
    return behind == all.begin() ? Stored{} : *std::prev(behind);
  };
  const Stored own = newest_of(image_);
  return own.position.version > inherited_ ? own.write : newest_of(engine_).write;
}

std::optional<GroupHost::Seen> GroupHost::read(Nanos began) const {
  if (!serves()) return std::nullopt;
  const Nanos window = server::ReplicationTimes{}.window;
  Seen seen{.newest = newest_at(plan_.broken == BrokenRule::kShowsAboveMark ? ~std::uint64_t{0}
                                                                            : shown_mark_)};
  seen.covers =
      plan_.broken == BrokenRule::kNoTick || (tick_ != 0 && local(began) < tick_ + window);
  return seen;
}

}  // namespace rkv::sim
