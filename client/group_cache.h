// Copies of groups that this client has read: where keys were, not what they are. A cached group
// gives candidates for a record READ and nothing else (get.h, G5).
//
// Set-associative, eight groups a set, second-chance replacement. The tags of a set share one cache
// line, so that a lookup touches that line and the group. Memory is reserved whole and touched as
// the cache fills: there is four times the room that is used, or more where a set was full
// (growing_sets.h).
//
//   GroupCache cache(64 << 20);
//   cache.put(place, group);
//   if (const Group* group = cache.find(place)) ...
//
// Thread safety: none.
#pragma once

#include <cstdint>

#include "client/growing_sets.h"
#include "client/lazy_memory.h"
#include "common/layout.h"
#include "common/random.h"

namespace rkv::client {

class GroupCache {
 public:
  static constexpr std::size_t kWays = 8;

  struct Statistics {
    std::uint64_t hits = 0;  // find() that found
    std::uint64_t misses = 0;
    std::uint64_t evictions = 0;
    std::uint64_t groups = 0;    // held now
    std::uint64_t capacity = 0;  // groups, at most
  };

  // Room for about `bytes` of groups, at least one set. 0 turns the cache off. When the address
  // space cannot be had, the cache is off as well: it is only ever a saving.
  explicit GroupCache(std::size_t bytes);

  // The group, until the next put() or clear(); null when not held.
  const Group* find(GroupPlace place);
  void put(GroupPlace place, const Group& group);
  void invalidate(GroupPlace place);
  void clear();

  // A PUT's reply told where the key's record is now: replaces the slot of that fingerprint in a
  // group held, or takes an empty one. With several of that fingerprint the group is dropped.
  void patch(GroupPlace place, Slot slot);

  Statistics statistics() const;

 private:
  struct alignas(64) Tags {
    std::uint64_t way[kWays];  // 0 = free, else place | kHeld, and kRecent
  };
  static constexpr std::uint64_t kHeld = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kRecent = std::uint64_t{1} << 62;

  std::size_t set_of(std::uint64_t place_bits) const { return sets_.of(mix64(place_bits)); }
  // Way of the place in its set, or kWays.
  static std::size_t way_of(const Tags& tags, GroupPlace place);
  static bool full(const Tags& tags);
  void split();
  void make_room(GroupPlace place);
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
