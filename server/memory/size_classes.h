// Size classes of the RecordAllocator. Included by its sources only.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>

#include "common/layout.h"
#include "common/mutex.h"
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
  bool is_due(Nanos now) const RKV_REQUIRES(mutex) {
    return !waiting.empty() && waiting.front().since + min_age <= now;
  }
  Block pop_waiting() RKV_REQUIRES(mutex) {
    const Block oldest = waiting.front().block;
    waiting.pop_front();
    waiting_units -= oldest.units;
    return oldest;
  }

  mutable Mutex mutex;
  Nanos min_age = 0;  // constant
  std::uint64_t used_units RKV_GUARDED_BY(mutex) = 0;
  std::uint64_t waiting_units RKV_GUARDED_BY(mutex) = 0;
  std::deque<Waiting> waiting RKV_GUARDED_BY(mutex);  // oldest first
  Location ready RKV_GUARDED_BY(mutex);  // first of the blocks cut in advance, all of one size
  std::uint32_t ready_count RKV_GUARDED_BY(mutex) = 0;
  std::uint32_t ready_units RKV_GUARDED_BY(mutex) = 0;
  std::atomic<std::uint32_t> extent{0};  // the extent that had space last
};

}  // namespace rkv::server
