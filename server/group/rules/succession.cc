#include "server/group/rules/succession.h"

#include <utility>

namespace rkv::server {

Status Succession::begin(Primary& primary, std::string name, Nanos now) {
  const GroupConfiguration& configuration = primary.configuration();
  if (is_under_way()) return fail(Code::kBusy, "the primary is handing over already");
  if (name == configuration.primary) return fail(Code::kConflict, "it is the primary already");
  if (!name.empty() && configuration.find(name) == nullptr)
    return fail(Code::kNotFound, "the group has no replica of that name");
  const auto successor = primary.successor(name, now);
  if (!successor && name.empty()) return fail(Code::kConflict, "no other replica is in sync");
  if (!successor) {
    return fail(Code::kConflict,
                "that replica is not in sync, does not answer, or cannot be reached: it cannot "
                "become the primary");
  }
  name_ = std::move(name);
  successor_ = successor->replica;
  phase_ = Phase::kSyncing;
  through_ = primary.last();
  began_at_ = now;
  primary.set_hurries(true);
  await_disks(primary, now);
  return {};
}

void Succession::await_disks(Primary& primary, Nanos now) {
  primary.want({.wal = through_, .sync = through_});
  if (primary.marks().sync >= through_) {
    phase_ = Phase::kFading;
    primary.end_ticks();
  } else if (now - began_at_ > kSyncedWithin) {
    give_up(primary);
  }
}

void Succession::give_up(Primary& primary) {
  phase_ = Phase::kNone;
  primary.set_hurries(false);
}

std::optional<Succession::Told> Succession::step(Primary& primary, Nanos now, bool is_quiet) {
  if (phase_ == Phase::kSyncing) await_disks(primary, now);
  if (phase_ == Phase::kNone || phase_ == Phase::kTold) return std::nullopt;
  auto successor = primary.successor(name_, now);
  // This primary cannot serve clients again, so another successor is better than none.
  if (!successor && phase_ == Phase::kClosed) successor = primary.successor({}, now);
  if (!successor && phase_ <= Phase::kFading) {
    if (phase_ == Phase::kFading) primary.resume_ticks();
    give_up(primary);
  }
  if (!successor) return std::nullopt;
  successor_ = successor->replica;
  // The next primary would have to wait for these versions.
  const std::uint64_t last = primary.last();
  primary.want({.wal = last, .sync = last});
  if (phase_ == Phase::kFading && now >= primary.believed_until() - kClosedBefore) {
    phase_ = Phase::kClosed;
    closed_at_ = now;
    return std::nullopt;
  }
  const bool is_ready = phase_ == Phase::kClosed && is_quiet && successor->has_all;
  const bool is_late = phase_ == Phase::kClosed && now - closed_at_ > kAnswersWithin;
  if (!is_ready && !is_late) return std::nullopt;
  const auto message = primary.hand_over(successor->peer, now);
  if (!message) return std::nullopt;
  phase_ = Phase::kTold;
  return Told{.peer = successor->peer, .message = *message};
}

}  // namespace rkv::server
