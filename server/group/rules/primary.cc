#include "server/group/rules/primary.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"

namespace rkv::server {

namespace {

bool has_process(const GroupConfiguration& configuration, std::uint64_t epoch) {
  return std::ranges::any_of(configuration.members,
                             [&](const Member& member) { return member.epoch == epoch; });
}

}  // namespace

Primary::Primary(ReplicaLog& log, Replica replica, GroupConfiguration configuration,
                 std::uint64_t least_ms, const ReplicationTimes& times, Nanos now)
    : log_(log),
      replica_(std::move(replica)),
      times_(times),
      inherited_(log.last().version),
      least_ms_(least_ms) {
  RKV_CHECK(configuration.has_primary(replica_), "the configuration names another primary");
  configuration_is(configuration, now);
}

bool Primary::counts(std::uint64_t epoch) const {
  return epoch != replica_.epoch && epoch != 0 &&
         (has_process(configuration_, epoch) || (change_ && has_process(*change_, epoch)));
}

bool Primary::holds_any_mark(std::uint64_t epoch) const {
  return counts(epoch) || catch_up_.awaits_sync(epoch);
}

Primary::Admission Primary::connected(std::uint64_t peer, const Hello& hello, Nanos now) {
  if (hello.group != configuration_.group || hello.replica.epoch == 0 ||
      hello.replica.epoch == replica_.epoch)
    return Admission::kRefused;
  if (hello.term > configuration_.term) return Admission::kDeposed;
  // A process has one connection: an older one has ended, although its end was not reported yet.
  std::erase_if(connections_,
                [&](const auto& each) { return each.second.replica.epoch == hello.replica.epoch; });
  Connection connection{.replica = hello.replica, .began_at = now};
  Process& process = processes_[hello.replica.epoch];
  if (process.heard_at == 0) process.heard_at = process.advanced_at = now;
  process.written_at = now;
  process.sent = log_.history().common_with(hello.history);
  process.timed = 0;
  connection.needs_copy = process.sent < hello.start || !log_.can_send_after(process.sent);
  // The failed process may be back, so perhaps nobody must be left out any more.
  if (counts(hello.replica.epoch)) is_undecided_ = false;
  catch_up_.forget(hello.replica.epoch);
  connections_[peer] = std::move(connection);
  return Admission::kAccepted;
}

void Primary::disconnected(std::uint64_t peer) {
  if (const auto at = connections_.find(peer); at != connections_.end())
    catch_up_.forget(at->second.replica.epoch);
  connections_.erase(peer);
  forget_processes();
}

void Primary::set_reachable(std::uint64_t peer, bool is_reachable) {
  if (const auto at = connections_.find(peer); at != connections_.end())
    at->second.is_reachable = is_reachable;
}

// The answers of a process are not needed once it neither counts nor is connected: it answers again
// before it may join.
void Primary::forget_processes() {
  std::erase_if(processes_, [this](const auto& process) {
    const std::uint64_t epoch = process.first;
    return !holds_any_mark(epoch) && std::ranges::none_of(connections_, [epoch](const auto& each) {
      return each.second.replica.epoch == epoch;
    });
  });
}

std::vector<std::uint64_t> Primary::unanswering(Nanos limit, Nanos now) const {
  std::vector<std::uint64_t> peers;
  for (const auto& [peer, connection] : connections_) {
    if (connection.sent.empty()) continue;
    const Nanos asked_at = connection.sent.begin()->second.at;
    const Nanos heard_at = processes_.at(connection.replica.epoch).heard_at;
    if (now - std::max({asked_at, heard_at, silent_at_}) > limit) peers.push_back(peer);
  }
  return peers;
}

std::uint64_t Primary::needed_after() const {
  std::uint64_t least = log_.last().version;
  for (const auto& [peer, connection] : connections_) {
    if (connection.needs_copy) continue;
    const Process& process = processes_.at(connection.replica.epoch);
    least = std::min(least, process.sent.version);
    if (process.has_answered) least = std::min(least, process.wal);
  }
  return least;
}

bool Primary::needs_copy(std::uint64_t peer) const {
  const auto at = connections_.find(peer);
  return at != connections_.end() && at->second.needs_copy;
}

bool Primary::is_silent() const {
  return has_handed_over() || is_undecided_ || (is_unfit_ && has_successor());
}

void Primary::set_unfit(bool is_unfit, Nanos now) {
  is_unfit_ = is_unfit;
  if (!is_unfit || has_successor()) hopeful_at_ = now;
}

// Replicas have the same data, so their disks may be full at the same time. Then this primary
// continues to serve reads. A backup's disk has shown that it works if it has entries that this one
// lacks.
bool Primary::has_successor() const {
  return std::ranges::any_of(connections_, [this](const auto& each) {
    const Connection& connection = each.second;
    if (!configuration_.has_in_sync(connection.replica) || connection.needs_copy) return false;
    const Process& process = processes_.at(connection.replica.epoch);
    return process.may_lead && (process.wal > own_wal_ || process.wal >= marks_.replicated);
  });
}

bool Primary::may_have_successor(Nanos now) const {
  return has_successor() ||
         (configuration_.in_sync_count() > 1 && now - hopeful_at_ <= times_.deposing);
}

// Whether the process connected so lately that it cannot have shown yet that it is well.
bool Primary::is_new(std::uint64_t epoch, Nanos now) const {
  return std::ranges::any_of(connections_, [&](const auto& each) {
    return each.second.replica.epoch == epoch && now - each.second.began_at <= times_.failure;
  });
}

// PRIMARY-9
bool Primary::may_send(const Process& process) const {
  if (log_.kept_bytes() < kMostUnwritten) return true;
  const std::uint64_t may_write = std::min(process.sent.version, marks_.replicated);
  return log_.bytes_between(process.wal, may_write) < kMostUnwritten;
}

// Returns whether this primary is silent. If a failed backup could not be left out for a long time,
// another replica takes over and does it, unless this primary's heartbeats prevent that. While all
// processes that count answer, an undecided change hinders nothing. Once silent, the primary stays
// so until one of them is back: a process that is not asked cannot fail.
bool Primary::note_silence(Nanos now) {
  if (change_ && now - change_since_ > times_.undecided) {
    is_undecided_ =
        is_undecided_ || std::ranges::any_of(processes_, [&](const auto& each) {
          return counts(each.first) && has_failed(each.second, now) && !is_new(each.first, now);
        });
  }
  const bool silent = is_silent();
  if (silent) silent_at_ = now;
  return silent;
}

std::optional<Entries> Primary::next(std::uint64_t peer, Nanos now) {
  if (note_silence(now)) return std::nullopt;
  const auto at = connections_.find(peer);
  if (at == connections_.end() || at->second.needs_copy) return std::nullopt;
  Connection& connection = at->second;
  if (connection.sent.size() >= kMaxUnanswered) return std::nullopt;
  Process& process = processes_.at(connection.replica.epoch);
  if (!log_.can_send_after(process.sent)) {  // released meanwhile
    connection.needs_copy = true;
    return std::nullopt;
  }
  const EntryBlock* const block = may_send(process) ? log_.after(process.sent) : nullptr;
  const bool has_news = connection.sent_marks != marks_ || connection.sent_wanted != wanted_ ||
                        connection.sent_round != rounds_;
  if (block == nullptr && !has_news && now < connection.heartbeat_due) return std::nullopt;
  Entries entries{.term = configuration_.term,
                  .number = ++connection.number,
                  .previous = process.sent,
                  .block = block == nullptr ? std::nullopt : std::optional(*block),
                  .marks = marks_,
                  .unix_ms = proposed_ms_,
                  .wanted = wanted_};
  if (block != nullptr) process.sent = block->last;
  time(process, std::min(process.sent.version, marks_.replicated), now);
  connection.sent.emplace(connection.number, Sent{.at = now, .unix_ms = proposed_ms_});
  connection.sent_marks = marks_;
  connection.sent_wanted = wanted_;
  connection.sent_round = rounds_;
  connection.heartbeat_due = now + times_.heartbeat;
  return entries;
}

void Primary::time(Process& process, std::uint64_t may_write, Nanos now) {
  if (process.timed != 0 || may_write <= process.wal) return;
  process.timed = may_write;
  process.timed_since = now;
}

void Primary::note_round_trip(Process& process, Nanos now) {
  if (process.timed == 0 || process.wal < process.timed) return;
  const Nanos took = now - process.timed_since;
  process.round_trip = std::max(took, process.round_trip - (process.round_trip - took) / 8);
  process.timed = 0;
}

bool Primary::answered(std::uint64_t peer, const Answer& answer, Nanos now) {
  const auto at = connections_.find(peer);
  if (at == connections_.end()) return false;
  Connection& connection = at->second;
  Process& process = processes_.at(connection.replica.epoch);
  if (answer.number == 0 || answer.number > connection.number ||
      answer.number < connection.answered || answer.last > process.sent ||
      !log_.history().contains(answer.last))
    return false;
  if (const auto sent = connection.sent.find(answer.number); sent != connection.sent.end()) {
    process.lease_from = std::max(process.lease_from, sent->second.at);
    process.time.raise(sent->second.unix_ms, now);
  }
  // The same answer again means that the backup is receiving a long message.
  const bool receives = answer.number == std::exchange(connection.answered, answer.number);
  connection.sent.erase(connection.sent.begin(), connection.sent.upper_bound(answer.number));
  const std::uint64_t wal = std::min(answer.wal, answer.last.version);
  if (answer.last > process.last || answer.last == log_.last() || wal > process.wal || receives)
    process.advanced_at = now;
  process.last = std::max(process.last, answer.last);
  if (wal > process.wal) {
    catch_up_.disk_took(connection.replica.epoch, log_.bytes_between(process.wal, wal),
                        log_.bytes_between(wal, marks_.replicated), now);
    process.wal = wal;
    process.written_at = now;
    note_round_trip(process, now);
  }
  if (wal >= std::min(answer.last.version, marks_.replicated)) process.written_at = now;
  process.sync = std::max(process.sync, std::min(answer.sync, answer.last.version));
  process.may_lead = answer.may_lead;
  process.has_answered = true;
  process.heard_at = now;
  update();
  return true;
}

void Primary::on_disk(std::uint64_t wal, std::uint64_t sync) {
  own_wal_ = std::max(own_wal_, wal);
  own_sync_ = std::max(own_sync_, sync);
  update();
}

void Primary::update() {
  Marks least{.replicated = log_.last().version, .wal = own_wal_, .sync = own_sync_};
  for (const auto& [epoch, process] : processes_) {
    if (!holds_any_mark(epoch)) continue;
    least.sync = std::min(least.sync, process.sync);
    if (!counts(epoch) && !catch_up_.awaits(epoch)) continue;
    least.replicated = std::min(least.replicated, process.last.version);
    least.wal = std::min(least.wal, process.wal);
  }
  raise_replicated(least.replicated);
  marks_.wal = std::max(marks_.wal, std::min(least.wal, marks_.replicated));
  marks_.sync = std::max(marks_.sync, std::min(least.sync, marks_.replicated));
}

// PRIMARY-5. Joiners are asked too, so that the time does not run away from a joiner whose
// messages take longer. The line runs faster than what is known by kMargin until its end.
void Primary::propose_time(std::uint64_t unix_ms, Nanos now) {
  constexpr Nanos kLost = TimeLine::kRuns / 100 * 4 * ReplicationTimes::kDriftPercent;
  constexpr std::int64_t kMargin = kLost / kNanosPerMs + 2;  // both ends are rounded
  proposed_ms_ = unix_ms;
  std::uint64_t known = unix_ms;
  for (const auto& [epoch, process] : processes_) {
    if (counts(epoch)) known = std::min(known, process.time.at(now));
  }
  for (const auto& [peer, connection] : connections_) {
    if (const Process* const process = well(connection, now))
      known = std::min(known, process->time.at(now));
  }
  time_.begins_at_0 = static_cast<std::int64_t>(unix_ms) - (now / kNanosPerMs);
  const TimeLine next{
      .unix_ms_at_0 = static_cast<std::int64_t>(known) - kMargin - (now / kNanosPerMs),
      .until = now + TimeLine::kRuns,
      .begins_at_0 = time_.begins_at_0};
  if (known == 0 || next.at(now) < std::max(least_ms_, time_.at(now))) return;
  time_ = next;
  has_time_ = true;
}

// If true, the process passes each moment of time_ before time_ does, as both run evenly.
bool Primary::has_passed_time(const Process& process, Nanos now) const {
  const Nanos end = std::max(now, time_.until);
  return process.time.at(now) >= time_.at(now) && process.time.at(end) >= time_.at(end);
}

// PRIMARY-8. Inherited entries were answered before, so they are not held. While a change is
// undecided, the joiner that sets the pace may stand still, and no other one is chosen: then no
// joiner sets the pace.
void Primary::raise_replicated(std::uint64_t version) {
  const std::uint64_t before = marks_.replicated;
  if (version <= before) return;
  const bool is_held = before >= inherited_ && !hurries_;
  if (is_held && log_limit_) version = std::min(version, log_.end_at(*log_limit_));
  const auto pace = is_held && !change_ ? processes_.find(catch_up_.paced_by()) : processes_.end();
  if (pace == processes_.end()) {
    marks_.replicated = std::max(before, version);
    return;
  }
  const std::uint64_t near = log_.end_within(pace->second.wal, catch_up_.near());
  version = std::min(version, std::max(near, log_.end_within(before, catch_up_.allowed())));
  marks_.replicated = std::max(before, version);
  catch_up_.rose(log_.bytes_between(std::max(before, near), marks_.replicated));
}

Nanos Primary::heard_since() const {
  Nanos since = std::numeric_limits<Nanos>::max();
  for (const auto& [epoch, process] : processes_) {
    if (!counts(epoch)) continue;
    since = std::min(since,
                     process.has_answered ? process.lease_from : std::numeric_limits<Nanos>::min());
  }
  return since;
}

Nanos Primary::lease_until() const {
  const Nanos since = heard_since();
  const bool is_alone = since == std::numeric_limits<Nanos>::max();
  const bool is_unanswered = since == std::numeric_limits<Nanos>::min();
  if (is_alone && !alone_without_store_ && configuration_.members.size() > 1)
    return confirmed_at_ + times_.lease_alone();
  return is_alone || is_unanswered ? since : since + times_.lease_of_primary();
}

bool Primary::covers(Nanos tick) {
  const bool covers = has_ticks_ && lease_until() > tick + times_.window;
  if (covers) last_tick_ = std::max(last_tick_, tick);
  return covers;
}

std::optional<Primary::Successor> Primary::successor(std::string_view name, Nanos now) const {
  std::optional<Successor> best;
  LogPosition longest;
  for (const auto& [peer, connection] : connections_) {
    const Replica& replica = connection.replica;
    if (!configuration_.has_in_sync(replica) || connection.needs_copy) continue;
    if (connection.is_reachable == false) continue;
    if (!name.empty() && replica.name != name) continue;
    const Process& process = processes_.at(replica.epoch);
    if (!process.has_answered || !process.may_lead || has_failed(process, now)) continue;
    if (best && process.last <= longest) continue;
    longest = process.last;
    best = {.peer = peer, .replica = replica, .has_all = process.last == log_.last()};
  }
  return best;
}

std::optional<HandOver> Primary::hand_over(std::uint64_t peer, Nanos now) {
  const auto at = connections_.find(peer);
  const bool may_tell = !has_ticks_ && now >= believed_until() && !change_ && !is_silent();
  if (!may_tell || at == connections_.end() || !configuration_.has_in_sync(at->second.replica))
    return std::nullopt;
  handed_over_at_ = now;
  return HandOver{.term = configuration_.term};
}

Primary::Other Primary::other(const Replica& replica, const Connection* connection) const {
  Other made{.name = replica.name,
             .address = replica.address,
             .is_in_sync = has_process(configuration_, replica.epoch),
             .is_connected = connection != nullptr,
             .needs_copy = connection != nullptr && connection->needs_copy,
             .is_unreachable = connection != nullptr && connection->is_reachable == false};
  if (const auto at = processes_.find(replica.epoch); at != processes_.end()) {
    made.last = at->second.last;
    made.heard_at = at->second.heard_at;
  }
  return made;
}

std::vector<Primary::Other> Primary::others() const {
  std::vector<Other> all;
  const auto connection_of = [this](std::uint64_t epoch) -> const Connection* {
    const auto at = std::ranges::find_if(
        connections_, [epoch](const auto& each) { return each.second.replica.epoch == epoch; });
    return at == connections_.end() ? nullptr : &at->second;
  };
  for (const Member& member : configuration_.members) {
    if (!member.in_sync() || member.epoch == replica_.epoch) continue;
    all.push_back(other({.name = member.name, .address = member.address, .epoch = member.epoch},
                        connection_of(member.epoch)));
  }
  for (const auto& [peer, connection] : connections_) {
    if (!has_process(configuration_, connection.replica.epoch))
      all.push_back(other(connection.replica, &connection));
  }
  return all;
}

bool Primary::has_failed(const Process& process, Nanos now) const {
  const auto is_over = [&](Nanos since) {
    return now - std::max(since, silent_at_) > times_.failure;
  };
  if (is_over(process.heard_at)) return true;
  const bool lacks_nothing_sent = process.last == process.sent;
  return process.last < log_.last() &&
         is_over(process.advanced_at + (lacks_nothing_sent ? kDiskPauses - times_.failure : 0));
}

// PRIMARY-11
bool Primary::may_be_cut_off(const Process& failed, Nanos now) const {
  const auto quiet_for = [&](const Process& process) {
    return now - std::max(process.heard_at, silent_at_);
  };
  const auto quiet = std::ranges::count_if(processes_, [&](const auto& each) {
    return counts(each.first) && quiet_for(each.second) > times_.failure / 2;
  });
  return quiet > 1 && quiet_for(failed) <= 2 * times_.failure;
}

// The process of the connection; nullptr: it can neither join nor be awaited.
const Primary::Process* Primary::well(const Connection& connection, Nanos now) const {
  const auto at = processes_.find(connection.replica.epoch);
  if (at == processes_.end() || connection.needs_copy || !at->second.has_answered) return nullptr;
  const Process& process = at->second;
  const bool is_written = process.wal >= std::min(process.last.version, marks_.replicated) ||
                          now - std::max(process.written_at, silent_at_) <= kDiskPauses;
  const bool is_well =
      !has_failed(process, now) && is_written && process.last.version >= inherited_;
  return is_well ? &process : nullptr;
}

// PRIMARY-13. The process of the connection; nullptr: it cannot join now, so writes must not wait
// for it.
const Primary::Process* Primary::well_to_lead(const Connection& connection, Nanos now) const {
  const Process* const process = well(connection, now);
  const bool may = process != nullptr && process->may_lead && connection.is_reachable == true;
  return may ? process : nullptr;
}

// Writes that earlier terms answered as written are at least on this replica's own disk. Its marks
// do not show that before all in sync have answered.
bool Primary::may_join(const Connection& connection, Nanos now) const {
  const Process* const process = well_to_lead(connection, now);
  return process != nullptr && process->last.version >= marks_.replicated &&
         process->wal >= std::max(marks_.wal, std::min(own_wal_, inherited_)) &&
         process->sync >= std::max(marks_.sync, std::min(own_sync_, inherited_)) &&
         has_passed_time(*process, now);
}

std::optional<GroupConfiguration> Primary::wanted_change(Nanos now) const {
  for (const Member& member : configuration_.members) {
    if (!counts(member.epoch)) continue;
    const Process& process = processes_.at(member.epoch);
    if (!has_failed(process, now) || may_be_cut_off(process, now)) continue;
    const auto next = left(configuration_,
                           {.name = member.name, .address = member.address, .epoch = member.epoch});
    if (next) return *next;
  }
  if (store_answers_ && !revoking_.empty()) {
    const auto next = with_revoked(configuration_, revoking_);
    if (next) return *next;
  }
  for (const auto& [peer, connection] : connections_) {
    if (!store_answers_ || counts(connection.replica.epoch) || !may_join(connection, now)) continue;
    const auto next = joined(configuration_, connection.replica);
    if (next) return *next;
  }
  if (!removing_.empty()) {
    const auto next = without(configuration_, removing_);
    if (next) return *next;
  }
  return std::nullopt;
}

Status Primary::remove(std::string_view name) {
  const Member* const member = configuration_.find(name);
  if (member == nullptr) return fail(Code::kNotFound, "the group has no replica of that name");
  if (name == configuration_.primary)
    return fail(Code::kConflict, "it is the primary: make another replica the primary first");
  if (member->in_sync())
    return fail(Code::kConflict, "it is in sync, so its data counts: stop it first");
  const bool is_connected = std::ranges::any_of(
      connections_, [name](const auto& each) { return each.second.replica.name == name; });
  if (is_connected)
    return fail(Code::kConflict, "it is connected, and would be a member again: stop it first");
  if (is_removing()) return fail(Code::kBusy, "another replica is being removed");
  removing_ = name;
  return {};
}

Status Primary::revoke(std::span<const RevokedSecret> secrets) {
  std::vector<RevokedSecret> all = revoking_;
  for (const RevokedSecret& secret : secrets) {
    if (!configuration_.has_revoked(secret) && std::ranges::find(all, secret) == all.end())
      all.push_back(secret);
  }
  if (all.size() == revoking_.size()) return {};
  if (const auto next = with_revoked(configuration_, all); !next)
    return std::unexpected(next.error());
  revoking_ = std::move(all);
  return {};
}

std::optional<GroupConfiguration> Primary::begin_change(Nanos now) {
  if (note_silence(now) || change_) return std::nullopt;
  change_ = wanted_change(now);
  change_since_ = now;
  if (change_) {
    catch_up_.joins();
  } else {
    help_joiners(now);
  }
  update();
  return change_;
}

// PRIMARY-8
void Primary::help_joiners(Nanos now) {
  const bool begins = catch_up_.look(joiners(now), {.may_await = !hurries_ && store_answers_,
                                                    .is_needed = configuration_.in_sync_count() < 2,
                                                    .now = now});
  if (const auto wait = catch_up_.take_in_vain()) note_in_vain(*wait);
  if (!begins) return;
  for (const auto& [peer, connection] : connections_) {
    if (catch_up_.awaits_sync(connection.replica.epoch)) awaited_ = connection.replica.name;
  }
  want({.wal = marks_.wal, .sync = marks_.sync});
  begin_round();
}

void Primary::note_in_vain(const CatchUp::InVain& wait) {
  in_vain_ = {.name = awaited_, .why = wait.why, .waited = wait.waited};
  const auto at = processes_.find(wait.epoch);
  if (at == processes_.end()) return;
  const Process& process = at->second;
  in_vain_->lacks_bytes = log_.bytes_between(process.last.version, log_.last().version);
  in_vain_->disk_lacks_bytes = log_.bytes_between(process.wal, marks_.wal);
  in_vain_->round_trip = process.round_trip;
}

std::vector<CatchUp::Joiner> Primary::joiners(Nanos now) const {
  std::vector<CatchUp::Joiner> all;
  for (const auto& [peer, connection] : connections_) {
    const Process* const process = well_to_lead(connection, now);
    if (counts(connection.replica.epoch) || process == nullptr ||
        !joined(configuration_, connection.replica))
      continue;
    const auto lacks_little = [this](std::uint64_t has, std::uint64_t of) {
      return log_.bytes_between(has, of) <= CatchUp::kLacksLittle ||
             log_.blocks_after_version(has) <= log_.blocks_after_version(of) + CatchUp::kFewBlocks;
    };
    all.push_back({.peer = peer,
                   .epoch = connection.replica.epoch,
                   .disk_lacks_much = !lacks_little(process->wal, marks_.replicated),
                   .lacks_little = lacks_little(process->last.version, log_.last().version) &&
                                   lacks_little(process->wal, marks_.wal),
                   .has_sync_mark = process->sync >= marks_.sync,
                   .round_trip = process->round_trip});
  }
  return all;
}

void Primary::stood_still(Nanos time, Nanos now) {
  for (auto& [epoch, process] : processes_) {
    process.heard_at = std::min(process.heard_at + time, now);
    process.advanced_at = std::min(process.advanced_at + time, now);
    process.written_at = std::min(process.written_at + time, now);
  }
}

bool Primary::may_give_up() const {
  return change_ && change_->in_sync_count() >= configuration_.in_sync_count();
}

// After this call a joiner does not count any more.
void Primary::give_up() {
  if (change_->members.size() < configuration_.members.size()) removing_.clear();
  change_.reset();
  is_undecided_ = false;
  forget_processes();
  update();
}

void Primary::configuration_is(const GroupConfiguration& now_stored, Nanos now) {
  RKV_CHECK(now_stored.has_primary(replica_), "the configuration names another primary");
  note_silence(now);
  configuration_ = now_stored;
  change_.reset();
  is_undecided_ = false;
  if (const Member* const gone = configuration_.find(removing_); gone == nullptr || gone->in_sync())
    removing_.clear();
  std::erase_if(revoking_, [this](const auto& each) { return configuration_.has_revoked(each); });
  for (const Member& member : configuration_.members) {
    if (!counts(member.epoch)) continue;
    Process& process = processes_[member.epoch];
    if (process.heard_at == 0) process.heard_at = process.advanced_at = process.written_at = now;
  }
  forget_processes();
  update();
}

}  // namespace rkv::server
