#include "server/group/rules/catch_up.h"

#include <algorithm>
#include <utility>

namespace rkv::server {

namespace {

const CatchUp::Joiner* find(std::span<const CatchUp::Joiner> joiners, std::uint64_t epoch) {
  const auto at = std::ranges::find(joiners, epoch, &CatchUp::Joiner::epoch);
  return at == joiners.end() ? nullptr : &*at;
}

}  // namespace

bool CatchUp::look(std::span<const Joiner> joiners, const Now& at) {
  const auto& [may_await, is_needed, now] = at;
  if (awaited_ != 0) go_on_awaiting(joiners, at);
  if (std::exchange(was_awaited_, awaited_ != 0) && awaited_ == 0) end_wait(is_needed, now);
  choose_pace(joiners, now);
  take_turns(is_needed, now);
  if (awaited_ != 0 || !may_await || now - ended_at_ < pause_) return false;
  was_awaited_ = begin_wait(joiners, now);
  return was_awaited_;
}

Nanos CatchUp::longest_wait(const Joiner& joiner, bool is_needed) const {
  if (phase_ == Phase::kSync) return is_needed ? kAwaitsSyncIfNeeded : kAwaitsSync;
  return std::clamp(kRoundTrips * joiner.round_trip, kAwaits, kLongestAwaits);
}

void CatchUp::go_on_awaiting(std::span<const Joiner> joiners, const Now& at) {
  const Joiner* const joiner = find(joiners, awaited_);
  const auto ends = [this](const char* why) {
    why_in_vain_ = why;
    in_vain_ = std::exchange(awaited_, 0);
  };
  if (joiner == nullptr) return ends("it has left, or is not well");
  if (!at.may_await) return ends("etcd does not answer, or the primary hands over");
  if (!joiner->lacks_little) return ends("it lacks too much");
  if (at.now - phase_since_ >= longest_wait(*joiner, at.is_needed)) {
    ends(phase_ == Phase::kSync ? "its disk took too long for a sync" : "it took too long");
  } else if (phase_ == Phase::kSync && joiner->has_sync_mark) {
    phase_ = Phase::kAll;
    phase_since_ = at.now;
  }
}

void CatchUp::end_wait(bool is_needed, Nanos now) {
  const Nanos waited = now - awaited_since_;
  const char* const why = std::exchange(why_in_vain_, nullptr);
  told_in_vain_ = {.epoch = awaited_last_,
                   .why = why != nullptr ? why : "its connection has ended",
                   .waited = waited};
  ended_at_ = now;
  pause_ = std::clamp(std::max(2 * pause_, waited), kFirstPause,
                      is_needed ? kLongestPauseIfNeeded : kLongestPause);
}

// Joiners take turns, so that one that never gets in sync does not keep the others out.
bool CatchUp::begin_wait(std::span<const Joiner> joiners, Nanos now) {
  const auto may_be_next = [this](std::uint64_t behind) {
    return [behind](const Joiner& joiner) { return joiner.peer > behind && joiner.lacks_little; };
  };
  auto next = std::ranges::find_if(joiners, may_be_next(awaited_peer_));
  if (next == joiners.end()) next = std::ranges::find_if(joiners, may_be_next(0));
  if (next == joiners.end()) return false;
  awaited_ = awaited_last_ = next->epoch;
  awaited_peer_ = next->peer;
  phase_ = next->has_sync_mark ? Phase::kAll : Phase::kSync;
  phase_since_ = awaited_since_ = now;
  return true;
}

void CatchUp::take_turns(bool is_needed, Nanos now) {
  if (is_needed || paced_by_ == 0) {
    rests_ = false;
    turn_since_ = now;
  } else if (now - turn_since_ >= kPaces) {
    rests_ = !rests_;
    turn_since_ = now;
  }
}

void CatchUp::choose_pace(std::span<const Joiner> joiners, Nanos now) {
  if (find(joiners, paced_by_) != nullptr) return;
  const auto next = std::ranges::find_if(joiners, [this](const Joiner& joiner) {
    return joiner.disk_lacks_much || joiner.epoch == in_vain_;
  });
  paced_by_ = next == joiners.end() ? 0 : next->epoch;
  allowed_ = kMostAllowed;
  paced_since_ = far_until_ = now;
  taken_ = 0;
}

std::uint64_t CatchUp::near() const {
  const Nanos measured = far_until_ - paced_since_;
  if (measured < kNearTime / 2) return kLeastNear;
  const auto times = static_cast<double>(kNearTime) / static_cast<double>(measured);
  return std::clamp(static_cast<std::uint64_t>(static_cast<double>(taken_) * times), kLeastNear,
                    kLacksLittle);
}

void CatchUp::forget(std::uint64_t epoch) {
  if (epoch == awaited_) awaited_ = 0;
  if (epoch == paced_by_) paced_by_ = 0;
}

void CatchUp::rose(std::uint64_t bytes) {
  allowed_ -= static_cast<std::int64_t>(bytes);
}

// While the joiner is near, its disk writes only what clients write. That does not show its speed.
void CatchUp::disk_took(std::uint64_t epoch, std::uint64_t bytes, std::uint64_t still, Nanos now) {
  if (epoch != paced_by_) return;
  allowed_ = std::min(allowed_ + static_cast<std::int64_t>(bytes / 2), kMostAllowed);
  if (still <= near()) return;
  taken_ += bytes;
  far_until_ = now;
}

}  // namespace rkv::server
