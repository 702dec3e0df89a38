#include "server/group/rules/replica_log.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace rkv::server {

void ReplicaLog::append(const LogPosition& last, EntryBytes bytes) {
  const LogPosition previous = history_.last();
  history_.extend(last);
  const std::uint64_t before = appended_bytes_;
  kept_bytes_ += bytes->size();
  appended_bytes_ += bytes->size();
  blocks_.push_back({{.previous = previous, .last = last, .bytes = std::move(bytes)}, before});
}

std::deque<ReplicaLog::Kept>::const_iterator ReplicaLog::find_after(
    const LogPosition& position) const {
  return std::ranges::lower_bound(blocks_, position, {}, &Kept::previous);
}

std::uint64_t ReplicaLog::bytes_after(const LogPosition& position) const {
  const auto at = find_after(position);
  return at == blocks_.end() ? 0 : appended_bytes_ - at->before;
}

std::deque<ReplicaLog::Kept>::const_iterator ReplicaLog::find_after_version(
    std::uint64_t version) const {
  return std::ranges::lower_bound(blocks_, version, {},
                                  [](const Kept& kept) { return kept.previous.version; });
}

std::uint64_t ReplicaLog::bytes_after_version(std::uint64_t version) const {
  const auto at = find_after_version(version);
  return at == blocks_.end() ? 0 : appended_bytes_ - at->before;
}

std::size_t ReplicaLog::blocks_after_version(std::uint64_t version) const {
  return static_cast<std::size_t>(blocks_.end() - find_after_version(version));
}

// Returns the end of the last block, from `first` on, that begins before the place `bytes`; 0:
// none.
std::uint64_t ReplicaLog::end_before(std::deque<Kept>::const_iterator first,
                                     std::uint64_t bytes) const {
  const auto behind = std::ranges::lower_bound(first, blocks_.end(), bytes, {}, &Kept::before);
  return behind == first ? 0 : std::prev(behind)->last.version;
}

std::uint64_t ReplicaLog::end_within(std::uint64_t version, std::uint64_t bytes) const {
  const auto first = find_after_version(version);
  return first == blocks_.end() ? version
                                : std::max(version, end_before(first, first->before + bytes));
}

std::uint64_t ReplicaLog::end_at(std::uint64_t bytes) const {
  return std::max(start_.version, end_before(blocks_.begin(), bytes));
}

const EntryBlock* ReplicaLog::after(const LogPosition& position) const {
  const auto at = find_after(position);
  if (at == blocks_.end()) return nullptr;
  RKV_CHECK(at->previous == position, "the log is sent from the end of a block");
  return &*at;
}

bool ReplicaLog::can_send_after(const LogPosition& position) const {
  if (position == last()) return true;
  const auto at = find_after(position);
  return at != blocks_.end() && at->previous == position;
}

void ReplicaLog::release(std::uint64_t version) {
  shrink(0, version);
}

void ReplicaLog::shrink(std::size_t bytes, std::uint64_t version) {
  while (!blocks_.empty() && blocks_.front().last.version <= version && kept_bytes_ > bytes) {
    start_ = blocks_.front().last;
    kept_bytes_ -= blocks_.front().bytes->size();
    blocks_.pop_front();
  }
}

bool ReplicaLog::can_cut(const LogPosition& position) const {
  return position >= start_ && history_.contains(position) && can_send_after(position);
}

void ReplicaLog::cut(const LogPosition& position) {
  RKV_CHECK(can_cut(position), "what was released is not taken back, and blocks are not split");
  while (!blocks_.empty() && blocks_.back().last > position) {
    kept_bytes_ -= blocks_.back().bytes->size();
    appended_bytes_ = blocks_.back().before;
    blocks_.pop_back();
  }
  history_.cut(position);
}

}  // namespace rkv::server
