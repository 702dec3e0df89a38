// The error of an operation whose key is not in memory, and the result of the disk read with which
// the operation is called again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <limits>
#include <optional>
#include <vector>

#include "common/layout.h"
#include "rkv/result.h"

namespace rkv::server {

// The error of an operation on a key.
struct StoreError : Error {
  // Implicit, so that an operation can return any Error.
  StoreError(const Error& error, bool is_on_disk = false)  // NOLINT(google-explicit-constructor)
      : Error(error), on_disk(is_on_disk) {}
  // The key's record is, or may be, on disk only. The record must be loaded (DiskFetcher) before
  // the operation is called again. `code` is kBusy, for a caller that loads nothing.
  bool on_disk = false;
};
template <class T>
class [[nodiscard]] StoreResult : public std::expected<T, StoreError> {
 public:
  using std::expected<T, StoreError>::expected;
};
using StoreStatus = StoreResult<void>;

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
