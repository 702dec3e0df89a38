#include "client/slot_cache.h"

#include <algorithm>
#include <span>

namespace rkv::client {

SlotCache::SlotCache(std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t sets = std::max<std::size_t>(1, bytes / sizeof(Set));
  memory_ = LazyMemory(sets * sizeof(Set));
  if (memory_.data() == nullptr) return;
  set_count_ = sets;
  // Zero pages are free entries: nothing needs to be constructed.
  sets_ = static_cast<Set*>(memory_.data());
}

void SlotCache::put(KeyHash hash, Slot slot) {
  if (set_count_ == 0) return;
  Entry* const entries = set_of(hash).entries;
  Entry* place = nullptr;  // the key's, else the first free one, else the last
  for (Entry& entry : std::span(entries, kWays)) {
    if (entry.hash == hash.bits()) {
      entry.slot = slot.bits;
      return;
    }
    if (place == nullptr && entry.slot == 0) place = &entry;
  }
  if (slot.empty()) return;
  if (place == nullptr) place = &entries[kWays - 1];
  *place = {.hash = hash.bits(), .slot = slot.bits};
}

void SlotCache::clear() {
  if (!memory_.give_back()) std::fill_n(sets_, set_count_, Set{});
}

}  // namespace rkv::client
