// MemoryOptions, and the division of the memory limit: sizes of extents, of the directory and of
// the index reserve.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/layout.h"
#include "rkv/result.h"

namespace rkv::server {

inline constexpr std::size_t kMinMemoryBytes = std::size_t{16} << 20;

struct MemoryOptions {
  std::size_t memory_bytes = 0;  // limit for everything that clients READ; >= kMinMemoryBytes
  std::uint64_t epoch = 0;       // random per server start, never 0
  // Random, so that keys collide by chance only. A client can READ the seed and choose keys that
  // collide; INDEX-8 of index.h bounds what that costs.
  std::uint64_t hash_seed = 0;
  // More groups make a segment cheaper to find and more expensive to split. Power of two, 2 to
  // 4096.
  std::uint32_t groups_per_segment = 64;
  // Powers of two; 0 = derived from the memory. If both are equal, the index does not grow.
  std::uint32_t initial_segments = 0;
  std::uint32_t max_segments = 0;
  // 0 = derived from the memory. Tests of many extents use less.
  std::size_t index_extent_bytes = 0;
  std::size_t data_extent_bytes = 0;
  // For stores whose records may be on disk only: the index then holds more keys than memory holds
  // records. Data extents leave the index this many times the memory that it has.
  std::uint32_t index_growth = 0;
  // Clients are asked to report what they READ (IdentityLine::kReportReads).
  bool report_reads = false;
  // The memory of a removed record is overwritten with zeros (SCRUB-1 of record_allocator.h).
  bool scrub = false;
};

inline constexpr std::size_t kPageBytes = 4096;
// The last data extent takes what is left, unless that is less than this.
inline constexpr std::size_t kMinDataExtentBytes = std::size_t{1} << 20;

// kInvalidArgument: an option is out of range. kOutOfMemory: less than kMinMemoryBytes.
Status check_memory_options(const MemoryOptions& options);
// Returns the options with every 0 replaced by a size that suits the memory.
MemoryOptions with_sizes(const MemoryOptions& options);
// Enough bits for an entry of every segment that can exist, and one bit more, because prefixes
// split at different times by chance.
std::uint32_t directory_depth_for(const MemoryOptions& with_sizes);
// Bytes that data extents leave to the index. So a store filled with large values still has index
// memory for the small ones that replace them.
std::size_t index_reserve(const MemoryOptions& with_sizes);

}  // namespace rkv::server
