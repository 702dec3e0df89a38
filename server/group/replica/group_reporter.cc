#include "server/group/replica/group_reporter.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace rkv::server {

namespace {

GroupStatus::Role role_of(const Membership& membership) {
  switch (membership.role()) {
    case Membership::Role::kStarting:
      return GroupStatus::Role::kStarting;
    case Membership::Role::kFollowing:
      return membership.is_in_sync() ? GroupStatus::Role::kBackup : GroupStatus::Role::kJoining;
    case Membership::Role::kLeading:
      return GroupStatus::Role::kPrimary;
    case Membership::Role::kEnded:
      break;
  }
  return GroupStatus::Role::kEnded;
}

}  // namespace

GroupReporter::GroupReporter(std::string group, std::string name)
    : group_(std::move(group)), name_(std::move(name)) {
  GroupStatus first;
  first.group = group_;
  first.name = name_;
  publish(std::move(first));
}

// Counts terms that begin. The first term that is read began before this process, so it does not
// count.
void GroupReporter::note_term(std::uint32_t term, Nanos now) {
  if (term <= term_) return;
  if (term_ != 0) ++terms_;
  term_ = term;
  term_since_ = now;
}

GroupStatus GroupReporter::describe(const Membership& membership, const ReplicaLog& log,
                                    Nanos now) {
  next_at_ = now + kInterval;
  GroupStatus status;
  status.at = now;
  status.group = group_;
  status.name = name_;
  status.group_number = membership.group();
  status.role = role_of(membership);
  status.why_ended = membership.why_ended();
  status.is_in_sync = membership.is_in_sync();
  status.last = log.last().version;
  status.log_bytes = log.kept_bytes();
  if (const auto& configuration = membership.configuration()) {
    note_term(configuration->term, now);
    status.configuration = configuration->number;
    if (configuration->number != text_of_) {
      text_of_ = configuration->number;
      text_ = to_text(*configuration);
    }
    status.configuration_text = text_;
    status.term = term_;
    status.terms = terms_;
    status.term_for = now - term_since_;
    status.primary = configuration->primary;
    if (const Member* const primary = configuration->find(configuration->primary))
      status.primary_address = primary->address;
    add_members(status, membership, log, now);
  }
  if (const Primary* const primary = membership.primary()) {
    status.marks = primary->marks();
    const Nanos until = primary->lease_until();
    const bool is_alone = until == std::numeric_limits<Nanos>::max();
    if (!is_alone) status.lease_left = std::max<Nanos>(until, now) - now;
    status.is_serving = membership.acts(now) && until > now;
  } else if (membership.role() == Membership::Role::kFollowing) {
    status.marks = membership.backup().marks();
  }
  return status;
}

// REQUIRES: a configuration was read.
void GroupReporter::add_members(GroupStatus& status, const Membership& membership,
                                const ReplicaLog& log, Nanos now) {
  for (const Member& member : membership.configuration()->members) {
    status.members.push_back({.name = member.name,
                              .address = member.address,
                              .is_in_sync = member.in_sync(),
                              .is_primary = member.name == status.primary});
  }
  const Primary* const primary = membership.primary();
  if (primary == nullptr) return;
  const std::vector<Primary::Other> others = primary->others();
  for (const Primary::Other& other : others) {
    auto at = std::ranges::find(status.members, other.name, &GroupStatus::Member::name);
    if (at == status.members.end())
      at = status.members.insert(at, {.name = other.name, .address = other.address});
    LagMeter& lag = lags_[other.name];
    lag.note(now, status.last, other.last.version);
    at->lag = {.is_connected = other.is_connected,
               .needs_copy = other.needs_copy,
               .is_unreachable = other.is_unreachable,
               .bytes = log.bytes_after(other.last),
               .age = lag.age(now, other.last.version),
               .silent_for = now - other.heard_at};
  }
  std::erase_if(lags_, [&](const auto& lag) {
    return std::ranges::find(others, lag.first, &Primary::Other::name) == others.end();
  });
}

void GroupReporter::add_copies(GroupStatus& status, const EngineCopySender* sender,
                               const EngineCopyReceiver* receiver) const {
  status.sent = sent_;
  if (sender != nullptr) {
    const EngineCopySender::Progress progress = sender->progress();
    status.sent.replica = progress.replica;
    status.sent.bytes = progress.bytes;
    status.sent.total_bytes = progress.total_bytes;
    status.sent.waiting = progress.waiting;
  }
  status.received = received_;
  if (receiver != nullptr) {
    const EngineCopyReceiver::Progress progress = receiver->progress();
    status.received.replica = name_;
    status.received.bytes = progress.bytes;
    status.received.total_bytes = progress.total_bytes;
  }
}

void GroupReporter::add_disk(GroupStatus& status, BackupDisk& disk, Nanos now) {
  status.disk = {.state = disk.state(),
                 .hangs = disk.hangs(now),
                 .fed = disk.fed(),
                 .sync = disk.through().sync};
}

void GroupReporter::publish(GroupStatus status) {
  auto made = std::make_shared<const GroupStatus>(std::move(status));
  const MutexLock lock(mutex_);
  latest_ = std::move(made);
}

std::shared_ptr<const GroupStatus> GroupReporter::latest() const {
  const MutexLock lock(mutex_);
  return latest_;
}

}  // namespace rkv::server
