// Segments: which segment of groups holds the keys of each prefix, and which segments are unused.
//
// There are two copies of the directory. Clients READ the copy in shared memory, which is a hint
// (layout.h, LAYOUT-1). The server uses the other copy, the routes.
//
// Invariants:
//  SEGMENT-1  A route changes only while every pair lock of the segment that it led to is held. So
//      a thread that locks a pair, and then finds that its key's route still leads there, may rely
//      on the route until it unlocks.
//  SEGMENT-2  A segment is taken once and never given back. Until the process ends its memory
//      serves one prefix, which only becomes longer.
//  SEGMENT-3  A route is stored (release) after everything in its segment. So a thread that loads
//      the route (acquire) may use the segment.
//
// The directory has a fixed size, enough for more segments than the memory can hold. A split
// changes entries, never the size.
//
// Thread safety: home, route, take, unused, in_use: any thread. set_route, show: the holder of all
// pair locks of the old segment. add_extent: one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::server {

// A segment. Its keys are those whose prefix has the same first `depth` bits as the segment's.
struct Segment {
  std::uint32_t extent = 0;
  std::uint32_t number = 0;  // within the extent
  std::uint32_t depth = 0;
  friend constexpr bool operator==(Segment, Segment) = default;
};

class Segments {
 public:
  // `directory`: shared memory of 8 << directory_depth bytes. Only this object writes to it.
  Segments(MutableBytes directory, std::uint32_t directory_depth, std::uint32_t groups_per_segment,
           std::uint32_t max_segments, std::uint64_t epoch);

  std::uint32_t directory_depth() const { return directory_depth_; }
  std::uint32_t groups_per_segment() const { return groups_per_segment_; }

  Segment route(KeyHash hash) const {
    return decode(routes_[hash.directory_index(directory_depth_)].load(std::memory_order_acquire));
  }
  GroupPlace home(KeyHash hash) const {
    return group(route(hash), hash.group_index(groups_per_segment_));
  }
  GroupPlace group(Segment segment, std::uint32_t index) const {
    return {.extent = segment.extent, .number = segment.number * groups_per_segment_ + index};
  }

  // Returns an unused segment, or nothing if none is left. The caller sets its depth.
  std::optional<Segment> take();
  // Adds the unused segments of a new extent.
  void add_extent(std::uint32_t extent, std::uint32_t segments);
  // Relaxed: these counts only decide when to add memory.
  std::uint32_t unused() const { return unused_.load(std::memory_order_relaxed); }
  std::uint32_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  // Limit on the number of segments in use.
  std::uint32_t max_segments() const { return max_segments_; }

  // show() leads clients, and set_route() then leads the server, to `segment` for all keys that
  // share the first segment.depth bits of `prefix` (27 bits, left-aligned).
  void show(std::uint32_t prefix, Segment segment);
  void set_route(std::uint32_t prefix, Segment segment);

 private:
  struct Range {
    std::size_t first;
    std::size_t count;
  };
  Range entries_of(std::uint32_t prefix, std::uint32_t depth) const;
  static std::uint64_t encode(Segment segment) {
    return std::uint64_t{segment.extent} << 48 | std::uint64_t{segment.number} << 16 |
           segment.depth;
  }
  static Segment decode(std::uint64_t word) {
    return {.extent = static_cast<std::uint32_t>(word >> 48),
            .number = static_cast<std::uint32_t>(word >> 16),
            .depth = static_cast<std::uint32_t>(word) & 0xFFFFU};
  }

  const std::uint32_t directory_depth_;
  const std::uint32_t groups_per_segment_;
  const std::uint32_t max_segments_;
  const std::uint64_t epoch_;
  std::uint64_t* const shared_;  // the copy that clients READ
  std::unique_ptr<std::atomic<std::uint64_t>[]> routes_;

  struct Unused {  // segments first..end-1 of an extent
    std::uint32_t extent;
    std::uint32_t first;
    std::uint32_t end;
  };
  Mutex mutex_;  // innermost
  std::vector<Unused> unused_segments_ RKV_GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> unused_{0};
  std::atomic<std::uint32_t> in_use_{0};
};

}  // namespace rkv::server
