#include "server/memory/memory_sizes.h"

#include <algorithm>
#include <bit>

namespace rkv::server {

namespace {

// A client copies the directory: 2^24 entries take 128 MiB, and lead to 256 GiB of segments.
constexpr std::uint32_t kMaxDirectoryDepth = 24;

std::size_t segment_bytes(const MemoryOptions& options) {
  return std::size_t{options.groups_per_segment} * kGroupBytes;
}

bool power_of_two_or_0(std::uint32_t number) {
  return number == 0 || std::has_single_bit(number);
}

Status check_segments(const MemoryOptions& options) {
  const std::uint32_t groups = options.groups_per_segment;
  if (!std::has_single_bit(groups) || groups < 2 || groups > 4096) {
    return fail(Code::kInvalidArgument, "groups per segment: a power of two from 2 to 4096");
  }
  const std::uint32_t initial = options.initial_segments;
  const std::uint32_t most = options.max_segments;
  if (!power_of_two_or_0(initial) || !power_of_two_or_0(most) ||
      std::max(initial, most) > (1U << kMaxDirectoryDepth) ||
      std::max(initial, most) > options.memory_bytes / 2 / segment_bytes(options)) {
    return fail(Code::kInvalidArgument,
                "index segments: a power of two, at most half of the memory");
  }
  if (most != 0 && initial > most) {
    return fail(Code::kInvalidArgument, "index segments: more at the start than at most");
  }
  return {};
}

}  // namespace

Status check_memory_options(const MemoryOptions& options) {
  if (options.memory_bytes < kMinMemoryBytes) {
    return fail(Code::kOutOfMemory, "a store needs at least 16 MiB of memory");
  }
  if (options.memory_bytes > kMaxExtents * kMaxExtentBytes) {
    return fail(Code::kInvalidArgument, "more memory than 4096 extents hold (2 TiB)");
  }
  if (options.epoch == 0) return fail(Code::kInvalidArgument, "the epoch must not be 0");
  RKV_RETURN_IF_ERROR(check_segments(options));
  const std::size_t index = options.index_extent_bytes;
  if (index > kMaxExtentBytes || index % segment_bytes(options) != 0) {
    return fail(Code::kInvalidArgument, "an index extent has at most 512 MiB, in whole segments");
  }
  const std::size_t data = options.data_extent_bytes;
  if (data > kMaxExtentBytes || data % kPageBytes != 0 ||
      (data != 0 && data < kMinDataExtentBytes)) {
    return fail(Code::kInvalidArgument, "a data extent has 1 to 512 MiB, in whole pages");
  }
  return {};
}

// A full store has about sixteen data extents, so that it grows by 1/16 of the limit. Index extents
// are 1/256 of the limit, because the segments ready for the next splits are unused memory. Small
// stores have fewer data extents, so that large values fit.
MemoryOptions with_sizes(const MemoryOptions& given) {
  MemoryOptions options = given;
  const std::size_t limit = options.memory_bytes;
  const std::size_t segment = segment_bytes(options);
  if (options.max_segments == 0) {
    // 32-byte records, the smallest, need a quarter as much index as data.
    const std::size_t most = std::bit_ceil(std::max<std::size_t>(limit / 4 / segment, 1));
    options.max_segments =
        static_cast<std::uint32_t>(std::min<std::size_t>(most, 1U << kMaxDirectoryDepth));
    options.max_segments = std::max(options.max_segments, options.initial_segments);
  }
  if (options.index_extent_bytes == 0) {
    // At least a huge page, unless the store itself is small.
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t least = std::min(kHugePage, std::bit_floor(limit / 64));
    const std::size_t bytes = std::clamp<std::size_t>(std::bit_floor(limit / 256),
                                                      std::max(least, segment), kMaxExtentBytes);
    options.index_extent_bytes =
        std::min<std::size_t>(bytes, std::size_t{options.max_segments} * segment);
  }
  if (options.initial_segments == 0) {
    const std::size_t half = options.index_extent_bytes / 2 / segment;
    options.initial_segments = static_cast<std::uint32_t>(std::max<std::size_t>(half, 1));
    options.initial_segments =
        std::bit_floor(std::min(options.initial_segments, options.max_segments));
  }
  if (options.data_extent_bytes == 0) {
    constexpr std::size_t kRoomForLargeValues = std::size_t{32} << 20;
    const std::size_t bytes = std::max(limit / 16, std::min(kRoomForLargeValues, limit / 4));
    // The longest values are KV blocks of 16 MiB. With room for their heads an extent of 64 MiB has
    // four of them, not three.
    static_assert(kMaxLargeHeadBytes <= kPageBytes);
    const std::size_t heads = bytes / kMaxValueBytes * kPageBytes;
    options.data_extent_bytes = std::min(bytes / kPageBytes * kPageBytes + heads, kMaxExtentBytes);
  }
  return options;
}

std::uint32_t directory_depth_for(const MemoryOptions& options) {
  const auto bits = static_cast<std::uint32_t>(std::countr_zero(options.max_segments));
  if (options.max_segments == options.initial_segments) return bits;  // nothing will split
  return std::min(bits + 1, kMaxDirectoryDepth);
}

std::size_t index_reserve(const MemoryOptions& options) {
  const std::size_t most = std::size_t{options.max_segments} * segment_bytes(options);
  return std::min(options.memory_bytes / 64, most);
}

}  // namespace rkv::server
