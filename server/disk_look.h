// What has been found on disk for an operation whose key is not in memory, and is called again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/layout.h"
#include "rkv/result.h"

namespace rkv::server {

// What an operation says of a key whose record is, or may be, on disk and not in memory: it has to
// be loaded first (Loads), then the operation is called again. Never leaves the server.
inline constexpr Code kOnDisk = static_cast<Code>(200);

// A record that memory has no room for. A GET and a DELETE can do with this.
struct RecordOnDisk {
  Version version{};
  std::uint64_t expiry_ms = 0;
  bool counter = false;
  std::vector<std::byte> value{};  // not a large one
  bool large = false;
  Error no_room{};  // for everybody else
};

// What the disk has of the key after everything up to the commit sequence `as_of` had been written
// there: no record, or one that was not taken into memory. Nothing: nobody has looked.
struct SeenOnDisk {
  std::uint64_t as_of = 0;
  const RecordOnDisk* record = nullptr;  // valid during the call
};
using DiskLook = std::optional<SeenOnDisk>;

}  // namespace rkv::server
