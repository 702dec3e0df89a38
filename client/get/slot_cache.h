// Caches a slot for a key's hash: where the record was when this client last read or wrote the key.
// Like a cached group (group_cache.h) a slot is only a candidate for a record READ (get.h, GET-5).
// A group serves all its keys, including keys never requested. An entry here serves one key, but is
// found in one cache line; directory, tags and group are three, one after the other.
//
//   SlotCache cache(8 << 20);
//   cache.put(hash, slot);
//   if (const Slot slot = cache.find(hash); !slot.empty()) ...
//
// Four entries a set, one set a cache line. An entry that is found changes places with the entry
// before it. A new entry takes a free place, or else the last place. So a key read once does not
// displace keys that are read often. The cache grows with its contents (growing_sets.h), as the
// group cache does.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "client/get/growing_sets.h"
#include "client/get/lazy_memory.h"
#include "common/layout.h"

namespace rkv::client {

class SlotCache {
 public:
  // Space for about `bytes`, at least one set. The cache is off if `bytes` is 0 or the address
  // space is not available.
  explicit SlotCache(std::size_t bytes);

  // Returns the cached slot; empty if there is none.
  Slot find(KeyHash hash) {
    if (growing_.count() == 0) return {};
    Entry* const entries = set_of(hash.bits()).entries;
    for (std::size_t i = 0; i < kWays; ++i) {
      if (entries[i].hash != hash.bits()) continue;
      const Slot slot{entries[i].slot};
      if (i != 0) std::swap(entries[i], entries[i - 1]);
      return slot;
    }
    return {};
  }
  // Announces a find().
  void prefetch(KeyHash hash) const {
    if (growing_.count() != 0) __builtin_prefetch(&set_of(hash.bits()));
  }
  void put(KeyHash hash, Slot slot);
  void forget(KeyHash hash) { put(hash, {}); }
  void clear();

 private:
  static constexpr std::size_t kWays = 4;
  // The slot of a free entry is empty.
  struct Entry {
    std::uint64_t hash;
    std::uint64_t slot;
  };
  struct alignas(64) Set {
    Entry entries[kWays];
  };
  Set& set_of(std::uint64_t hash) const { return sets_[growing_.of(hash)]; }
  static bool full(const Set& set);
  void split();
  void split_sets_for(KeyHash hash);

  GrowingSets growing_;
  std::size_t held_ = 0;
  LazyMemory memory_;
  Set* sets_ = nullptr;
};

}  // namespace rkv::client
