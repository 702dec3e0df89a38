// Checks of the caller's memory that values are written to, before anything is written.
//
// Invariants:
//  INTO-1  No key of a call lies in memory that the call writes values to. A key is compared with
//      what was READ, and read again for another try, until its operation has ended. Otherwise a
//      value that landed on a key would make the key absent.
//
// Thread safety: functions without shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/bytes.h"
#include "rkv/result.h"

namespace rkv::client {

bool overlap_if_close(Bytes a, Bytes b);
// Inline only as far as a warm GET needs.
inline bool overlap(Bytes a, Bytes b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data());
  const bool is_close = begin_a + a.size() - begin_b < a.size() + b.size();
  return is_close && overlap_if_close(a, b);
}

inline constexpr Error kKeyInDestination{
    .code = Code::kInvalidArgument,
    .text = "the key lies in the memory that the value is written to"};

// Of a call with many keys, each with memory of its own: also that no two destinations overlap.
// O(n log n). Allocates if there are several.
Status check_destinations(std::span<const std::string_view> keys,
                          std::span<const std::span<std::byte>> into);

}  // namespace rkv::client
