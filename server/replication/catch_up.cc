#include "server/replication/catch_up.h"

#include <algorithm>
#include <utility>

namespace rkv::server {

namespace {

const CatchUp::Joiner* find(std::span<const CatchUp::Joiner> joiners, std::uint64_t epoch) {
  const auto at = std::ranges::find(joiners, epoch, &CatchUp::Joiner::epoch);
  return at == joiners.end() ? nullptr : &*at;
}

}  // namespace

bool CatchUp::look(std::span<const Joiner> joiners, bool may_await, Nanos now) {
  if (awaited_ != 0) go_on_awaiting(joiners, may_await, now);
  if (std::exchange(was_awaited_, awaited_ != 0) && awaited_ == 0) {
    ended_at_ = now;
    pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  }
  choose_pace(joiners, now);
  if (awaited_ != 0 || !may_await || now - ended_at_ < pause_) return false;
  was_awaited_ = begin_wait(joiners, now);
  return was_awaited_;
}

void CatchUp::go_on_awaiting(std::span<const Joiner> joiners, bool may_await, Nanos now) {
  const Joiner* const joiner = find(joiners, awaited_);
  const Nanos limit = phase_ == Phase::kSync ? kAwaitsSync : kAwaits;
  if (joiner == nullptr || !joiner->lacks_little || !may_await || now - phase_since_ >= limit) {
    in_vain_ = std::exchange(awaited_, 0);
  } else if (phase_ == Phase::kSync && joiner->has_sync_mark) {
    phase_ = Phase::kAll;
    phase_since_ = now;
  }
}

// In turn, so that one that never gets there does not keep the others out.
bool CatchUp::begin_wait(std::span<const Joiner> joiners, Nanos now) {
  const auto may_be_next = [this](std::uint64_t behind) {
    return [behind](const Joiner& joiner) { return joiner.peer > behind && joiner.lacks_little; };
  };
  auto next = std::ranges::find_if(joiners, may_be_next(awaited_peer_));
  if (next == joiners.end()) next = std::ranges::find_if(joiners, may_be_next(0));
  if (next == joiners.end()) return false;
  awaited_ = next->epoch;
  awaited_peer_ = next->peer;
  phase_ = next->has_sync_mark ? Phase::kAll : Phase::kSync;
  phase_since_ = now;
  return true;
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

// While it is near, its disk writes what clients write. That says nothing of its speed.
void CatchUp::disk_took(std::uint64_t epoch, std::uint64_t bytes, std::uint64_t still, Nanos now) {
  if (epoch != paced_by_) return;
  allowed_ = std::min(allowed_ + static_cast<std::int64_t>(bytes / 2), kMostAllowed);
  if (still <= near()) return;
  taken_ += bytes;
  far_until_ = now;
}

}  // namespace rkv::server
