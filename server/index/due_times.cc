#include "server/index/due_times.h"

#include <algorithm>
#include <cstddef>

namespace rkv::server {

void DueTimes::add_extent(std::uint32_t extent, std::uint32_t segments) {
  const std::size_t pairs = std::size_t{segments} * groups_per_segment_ / 2;
  Extent& added = extents_[extent];
  added.pairs = std::make_unique<std::atomic<std::uint64_t>[]>(pairs);
  added.segments = std::make_unique<std::atomic<std::uint64_t>[]>(segments);
  for (std::size_t i = 0; i < pairs; ++i)
    added.pairs[i].store(kNever, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < segments; ++i)
    added.segments[i].store(kNever, std::memory_order_relaxed);
}

bool DueTimes::finds(GroupPlace home, std::uint64_t expiry_ms) const {
  const std::uint64_t pair = of_pair(home);
  const std::uint64_t segment = segment_at(home).load(std::memory_order_seq_cst);
  return earliest() <= segment && segment <= pair && pair <= expiry_ms;
}

void DueTimes::give_back(Segment segment) {
  const Extent& extent = extents_[segment.extent];
  const std::uint32_t pairs = groups_per_segment_ / 2;
  std::uint64_t first = kNever;
  for (std::uint32_t i = 0; i < pairs; ++i) {
    first = std::min(first, extent.pairs[std::size_t{segment.number} * pairs + i].load(
                                std::memory_order_seq_cst));
  }
  lower(extent.segments[segment.number], first);
  lower(earliest_, first);
}

void DueTimes::split(Segment from, Segment to) {
  const std::uint32_t pairs = groups_per_segment_ / 2;
  for (std::uint32_t i = 0; i < pairs; ++i) {
    extents_[to.extent].pairs[std::size_t{to.number} * pairs + i].store(
        extents_[from.extent].pairs[std::size_t{from.number} * pairs + i].load(
            std::memory_order_relaxed),
        std::memory_order_seq_cst);
  }
  give_back(to);
}

}  // namespace rkv::server
