// Size classes of the RecordAllocator. Included by its sources only.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <mutex>

#include "common/layout.h"
#include "server/memory/record_allocator.h"

namespace rkv::server {

inline constexpr std::uint32_t kLongestInline =
    static_cast<std::uint32_t>(record_units(kMaxInlineRecordBytes));

constexpr std::uint32_t class_by_doubling(std::uint32_t units) {
  const std::uint32_t last = units - 1;
  const auto log2 = static_cast<std::uint32_t>(std::bit_width(last)) - 1;  // 4 or more
  return 16 + (log2 - 4) * 8 + (last >> (log2 - 3)) - 8;
}
inline constexpr std::uint32_t kHugeClass = class_by_doubling(kLongestInline) + 1;  // large values
inline constexpr std::uint32_t kClasses = kHugeClass + 1;

struct alignas(64) RecordAllocator::SizeClass {
  struct Waiting {
    Nanos since;
    Block block;
  };
  bool is_due(Nanos now) const {
    return !waiting.empty() && waiting.front().since + min_age <= now;
  }
  Block pop_waiting() {
    const Block oldest = waiting.front().block;
    waiting.pop_front();
    waiting_units -= oldest.units;
    return oldest;
  }

  mutable std::mutex mutex;  // guards all of it
  Nanos min_age = 0;         // constant
  std::uint64_t used_units = 0;
  std::uint64_t waiting_units = 0;
  std::deque<Waiting> waiting;  // oldest first
  Location ready;               // first of the blocks cut in advance, all of one size
  std::uint32_t ready_count = 0;
  std::uint32_t ready_units = 0;
  std::atomic<std::uint32_t> extent{0};  // the extent that had space last
};

}  // namespace rkv::server
