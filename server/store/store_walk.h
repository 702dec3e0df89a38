// Iteration over all pairs of the store. Included by the store's sources only.
#pragma once

#include <cstdint>
#include <mutex>

#include "server/store/store_impl.h"

namespace rkv::server {

inline constexpr std::uint32_t kPrefixMask = (1U << KeyHash::kPrefixBits) - 1;

inline KeyHash hash_of_prefix(std::uint32_t prefix) {
  return KeyHash(std::uint64_t{prefix} << (64 - KeyHash::kPrefixBits));
}

// Returns the first prefix after the segment; 0 after the last.
inline std::uint32_t next_prefix(std::uint32_t prefix, std::uint32_t depth) {
  const std::uint32_t span = 1U << (KeyHash::kPrefixBits - depth);
  return ((prefix & ~(span - 1)) + span) & kPrefixMask;
}

// Calls visit(Pair) for one pair under its lock. Returns false if the segment was split meanwhile;
// the caller retries.
template <class Visit>
bool Store::Impl::visit_pair(KeyHash prefix, std::uint32_t pair, std::uint32_t* depth,
                             Visit visit) {
  const Segments& segments = memory_.segments();
  const Segment segment = segments.route(prefix);
  const GroupPlace even = segments.group(segment, 2 * pair);
  PairLocks::Stripe& stripe = locks_.of(even);
  const std::scoped_lock lock(stripe.mutex);
  if (segments.route(prefix) != segment) return false;
  *depth = segment.depth;
  visit(Pair{.even = even, .counters = stripe.counters, .depth = segment.depth});
  return true;
}

// Visits all pairs in the order of prefixes. If a segment is split during the walk, its new segment
// is either visited later, or was created entirely after the walk began.
template <class Visit>
void Store::Impl::for_each_pair(Visit visit) {
  std::uint32_t prefix = 0;
  do {
    std::uint32_t depth = 0;
    for (std::uint32_t pair = 0; pair < memory_.groups_per_segment() / 2; ++pair) {
      while (!visit_pair(hash_of_prefix(prefix), pair, &depth, visit)) {
      }
    }
    prefix = next_prefix(prefix, depth);
  } while (prefix != 0);
}

}  // namespace rkv::server
