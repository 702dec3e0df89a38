#include "client/engine/destinations.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace rkv {

Result<Value> try_to_value(const ValueView& view) {
  return client::copy_of(view);
}

}  // namespace rkv

namespace rkv::client {

// Whether a begins in b, or b in a.
bool overlap_if_close(Bytes a, Bytes b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data());
  const bool is_any_empty = a.empty() || b.empty();
  return !is_any_empty && (begin_a - begin_b < b.size() || begin_b - begin_a < a.size());
}

Status check_destinations(std::span<const std::string_view> keys,
                          std::span<const std::span<std::byte>> into) {
  std::vector<Bytes> sorted;
  sorted.reserve(into.size());
  for (const std::span<std::byte> each : into)
    if (!each.empty()) sorted.emplace_back(each);
  const auto begins_before = [](Bytes a, Bytes b) { return std::less<>()(a.data(), b.data()); };
  if (!std::ranges::is_sorted(sorted, begins_before)) std::ranges::sort(sorted, begins_before);
  const auto meets_next = [](Bytes a, Bytes b) { return overlap(a, b); };
  if (std::ranges::adjacent_find(sorted, meets_next) != sorted.end()) {
    return fail(Code::kInvalidArgument, "two values of the call are written to the same memory");
  }
  for (const std::string_view text : keys) {
    const Bytes key = as_bytes(text);
    // Only the last destination that begins before the key's end can reach the key, or begin in it.
    const auto after = std::ranges::partition_point(
        sorted, [&](Bytes each) { return std::less<>()(each.data(), key.data() + key.size()); });
    if (after != sorted.begin() && overlap(key, *std::prev(after))) {
      return std::unexpected(kKeyInDestination);
    }
  }
  return {};
}

}  // namespace rkv::client
