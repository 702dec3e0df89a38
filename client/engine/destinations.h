// Destinations of values: checks of the caller's memory before anything is written to it, and
// copies.
//
// Invariants:
//  INTO-1  No key of a call lies in memory that the call writes values to. Until its operation has
//      ended, a key is compared with the record READ, and read again for another try. A value that
//      landed on a key would make the key look absent.
//
// Thread safety: functions without shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>

#include "common/bytes.h"
#include "rkv/result.h"
#include "rkv/values.h"

namespace rkv::client {

bool overlap_if_close(Bytes a, Bytes b);
// Whether two ranges overlap. Only the part that a warm GET needs is inline.
inline bool overlap(Bytes a, Bytes b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data());
  const bool is_close = begin_a + a.size() - begin_b < a.size() + b.size();
  return is_close && overlap_if_close(a, b);
}

inline constexpr Error kKeyInDestination{
    .code = Code::kInvalidArgument,
    .text = "the key lies in the memory that the value is written to"};

inline constexpr Error kNoMemoryForValue{.code = Code::kOutOfMemory,
                                         .call = "operator new",
                                         .text = "this process has no memory for the value"};
// try_to_value(), for a warm GET.
inline Result<Value> copy_of(const ValueView& view) {
  try {
    return to_value(view);
  } catch (const std::bad_alloc&) {
    return std::unexpected(kNoMemoryForValue);
  }
}

// Checks a call with many keys, each with its own memory: also that no two destinations overlap.
// O(n log n). Allocates if there are several.
Status check_destinations(std::span<const std::string_view> keys,
                          std::span<const std::span<std::byte>> into);

}  // namespace rkv::client
