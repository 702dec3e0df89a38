// How a memory limit is divided: sizes of extents, of the directory, of what is kept for the index.
//
// Thread safety: pure functions.
#pragma once

#include "server/memory.h"

namespace rkv::server {

inline constexpr std::size_t kPageBytes = 4096;
// The last data extent takes what is left, if it is not less than this.
inline constexpr std::size_t kMinDataExtentBytes = std::size_t{1} << 20;

// kInvalidArgument, kOutOfMemory: less than kMinMemoryBytes.
Status check_memory_options(const MemoryOptions& options);
// The same options with every 0 replaced by what suits the memory.
MemoryOptions with_sizes(const MemoryOptions& options);
// So many bits that every segment that can exist may have an entry, and one bit more: prefixes
// split by chance at different times.
std::uint32_t directory_depth_for(const MemoryOptions& with_sizes);
// Data extents leave this much to the index, so that a store filled with large values has still
// room for the index of the small ones that replace them.
std::size_t index_reserve(const MemoryOptions& with_sizes);

}  // namespace rkv::server
