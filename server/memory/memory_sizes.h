// Division of the memory limit: sizes of extents, of the directory and of the index reserve.
//
// Thread safety: pure functions.
#pragma once

#include "server/memory/memory.h"

namespace rkv::server {

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
