#include "server/store/expiries.h"

#include <algorithm>
#include <new>
#include <utility>

namespace rkv::server {

namespace {
constexpr auto kLater = [](const Expiry& a, const Expiry& b) { return a.at_ms > b.at_ms; };
}  // namespace

bool Expiries::add(const Expiry& expiry) {
  const MutexLock lock(mutex_);
  try {
    heap_.push_back(expiry);
  } catch (const std::bad_alloc&) {
    return false;
  }
  std::ranges::push_heap(heap_, kLater);
  return heap_.front().at_ms == expiry.at_ms;
}

std::optional<Expiry> Expiries::take_due(std::uint64_t now_ms) {
  const MutexLock lock(mutex_);
  if (heap_.empty() || heap_.front().at_ms > now_ms) return std::nullopt;
  std::ranges::pop_heap(heap_, kLater);
  const Expiry due = heap_.back();
  heap_.pop_back();
  return due;
}

std::optional<std::uint64_t> Expiries::earliest_ms() const {
  const MutexLock lock(mutex_);
  if (heap_.empty()) return std::nullopt;
  return heap_.front().at_ms;
}

std::size_t Expiries::size() const {
  const MutexLock lock(mutex_);
  return heap_.size();
}

std::vector<Expiry> Expiries::take_all() {
  const MutexLock lock(mutex_);
  return std::exchange(heap_, {});
}

void Expiries::put_back(const std::vector<Expiry>& notes) {
  const MutexLock lock(mutex_);
  heap_.insert(heap_.end(), notes.begin(), notes.end());
  std::ranges::make_heap(heap_, kLater);
}

}  // namespace rkv::server
