// Copies of groups that this client has read: past places of keys, not their present state. A
// cached group only gives candidates for a record READ (get.h, GET-5).
//
// Set-associative, eight groups a set, second-chance replacement. The tags of a set share one cache
// line, so a lookup touches that line and the group. Memory is reserved whole and touched as the
// cache fills. The cache keeps about four times the space in use, or more after a set was full
// (growing_sets.h).
//
//   GroupCache cache(64 << 20);
//   cache.put(place, group);
//   if (const Group* group = cache.find(place)) ...
//
// Thread safety: none.
#pragma once

#include <cstdint>

#include "client/get/growing_sets.h"
#include "client/get/lazy_memory.h"
#include "common/layout.h"
#include "common/random.h"

namespace rkv::client {

class GroupCache {
 public:
  static constexpr std::size_t kWays = 8;

  struct Statistics {
    std::uint64_t hits = 0;  // find() calls that found the group
    std::uint64_t misses = 0;
    std::uint64_t evictions = 0;
    std::uint64_t groups = 0;    // held now
    std::uint64_t capacity = 0;  // most groups that the cache can hold
  };

  // Space for about `bytes` of groups, at least one set. The cache is off if `bytes` is 0. It is
  // also off if the address space is not available: the cache only saves work.
  explicit GroupCache(std::size_t bytes);

  // Returns the group, valid until the next put() or clear(); null if it is not cached.
  const Group* find(GroupPlace place);
  void put(GroupPlace place, const Group& group);
  void invalidate(GroupPlace place);
  void clear();

  // Applies the key's new place from the reply of a PUT. Replaces the slot of that fingerprint in a
  // cached group, or takes an empty slot. If several slots have that fingerprint, the group is
  // dropped.
  void patch(GroupPlace place, Slot slot);

  Statistics statistics() const;

 private:
  struct alignas(64) Tags {
    std::uint64_t way[kWays];  // 0 = free; else place | kHeld, and kRecent if used
  };
  static constexpr std::uint64_t kHeld = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kRecent = std::uint64_t{1} << 62;

  std::size_t set_of(std::uint64_t place_bits) const { return sets_.of(mix64(place_bits)); }
  // The way that holds the place in its set; kWays if none does.
  static std::size_t way_of(const Tags& tags, GroupPlace place);
  static bool full(const Tags& tags);
  void split();
  void split_sets_for(GroupPlace place);
  std::size_t victim(Tags& tags);

  GrowingSets sets_;
  LazyMemory tags_memory_;
  LazyMemory groups_memory_;
  Tags* tags_ = nullptr;
  Group* groups_ = nullptr;
  std::size_t hand_ = 0;  // where the next search for a victim starts
  Statistics statistics_;
};

}  // namespace rkv::client
