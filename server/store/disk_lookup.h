// Result of a disk read for an operation whose key is not in memory. The operation is called again
// with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "common/layout.h"
#include "rkv/result.h"

namespace rkv::server {

// Returned by an operation whose key's record is, or may be, on disk only. The record must be
// loaded (DiskFetcher) before the operation is called again. This code never leaves the server.
inline constexpr Code kOnDisk = static_cast<Code>(200);

// Above all commit sequences.
inline constexpr std::uint64_t kAboveAllSequences = std::numeric_limits<std::uint64_t>::max();

// A record on disk that memory has no space for. It is enough for a GET or a DELETE.
struct RecordOnDisk {
  Version version{};
  std::uint64_t expiry_ms = 0;
  bool counter = false;
  std::vector<std::byte> value{};  // empty for a large value
  bool large = false;
  Error no_room{};  // the error for all other operations
};

// The key's state on disk after everything up to the commit sequence `as_of` had been written
// there: no record, or a record that was not taken into memory. Empty if the disk was not read.
struct SeenOnDisk {
  std::uint64_t as_of = 0;
  const RecordOnDisk* record = nullptr;  // valid during the call
};
using DiskLookup = std::optional<SeenOnDisk>;

}  // namespace rkv::server
