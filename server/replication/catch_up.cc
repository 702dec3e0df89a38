#include "server/replication/catch_up.h"

#include <algorithm>

namespace rkv::server {

namespace {

const CatchUp::Joiner* find(std::span<const CatchUp::Joiner> joiners, std::uint64_t epoch) {
  const auto at = std::ranges::find(joiners, epoch, &CatchUp::Joiner::epoch);
  return at == joiners.end() ? nullptr : &*at;
}

}  // namespace

bool CatchUp::look(std::span<const Joiner> joiners, bool may_await, Nanos now) {
  if (awaited_ != 0) go_on_awaiting(joiners, now);
  choose_pace(joiners);
  return awaited_ == 0 && may_await && now - phase_since_ >= kAwaitsAgain &&
         begin_wait(joiners, now);
}

void CatchUp::go_on_awaiting(std::span<const Joiner> joiners, Nanos now) {
  const Joiner* const joiner = find(joiners, awaited_);
  const Nanos limit = phase_ == Phase::kSync ? kAwaitsSync : kAwaits;
  if (joiner == nullptr || !joiner->lacks_little || now - phase_since_ >= limit) return end_wait();
  if (phase_ == Phase::kSync && joiner->has_sync_mark) {
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

void CatchUp::choose_pace(std::span<const Joiner> joiners) {
  const auto lacks_much = [](const Joiner& joiner) { return joiner.disk_lacks > kLacksLittle; };
  const Joiner* const current = find(joiners, paced_by_);
  if (current != nullptr && lacks_much(*current)) return;
  const auto next = std::ranges::find_if(joiners, lacks_much);
  paced_by_ = next == joiners.end() ? 0 : next->epoch;
  allowed_ = kMostAllowed;
}

void CatchUp::forget(std::uint64_t epoch) {
  if (epoch == awaited_) end_wait();
  if (epoch == paced_by_) paced_by_ = 0;
}

void CatchUp::rose(std::uint64_t bytes) {
  if (paced_by_ != 0) allowed_ -= static_cast<std::int64_t>(bytes);
}

void CatchUp::disk_took(std::uint64_t epoch, std::uint64_t bytes) {
  if (epoch == paced_by_)
    allowed_ = std::min(allowed_ + static_cast<std::int64_t>(bytes / 2), kMostAllowed);
}

}  // namespace rkv::server
