// Going over all pairs of the store: of its sources alone.
#pragma once

#include <cstdint>
#include <mutex>

#include "server/store_impl.h"

namespace rkv::server {

inline constexpr std::uint32_t kPrefixMask = (1U << KeyHash::kPrefixBits) - 1;

inline KeyHash hash_of_prefix(std::uint32_t prefix) {
  return KeyHash(std::uint64_t{prefix} << (64 - KeyHash::kPrefixBits));
}

// The first prefix after a segment's; 0 after the last.
inline std::uint32_t next_prefix(std::uint32_t prefix, std::uint32_t depth) {
  const std::uint32_t span = 1U << (KeyHash::kPrefixBits - depth);
  return ((prefix & ~(span - 1)) + span) & kPrefixMask;
}

// One pair under its lock. False: the segment was split meanwhile, look again.
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

// All pairs, in the order of prefixes. Of a segment that is split on the way, the new one comes
// later, or all of it was made by a split that began after this did.
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
