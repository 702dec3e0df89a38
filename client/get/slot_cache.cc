#include "client/get/slot_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rkv::client {

SlotCache::SlotCache(std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t sets = std::max<std::size_t>(1, bytes / sizeof(Set));
  memory_ = LazyMemory(sets * sizeof(Set));
  if (memory_.data() == nullptr) return;
  growing_ = GrowingSets(sets);
  // Zero pages are free entries: nothing needs to be constructed.
  sets_ = static_cast<Set*>(memory_.data());
}

bool SlotCache::full(const Set& set) {
  return std::ranges::all_of(set.entries, [](const Entry& entry) { return entry.slot != 0; });
}

void SlotCache::split() {
  const auto [from, low, high] = growing_.split();
  const Set entries = std::exchange(sets_[from], Set{});
  Entry* lower = sets_[low].entries;
  Entry* upper = sets_[high].entries;
  for (const Entry& entry : entries.entries) {
    if (entry.slot != 0) *(growing_.of(entry.hash) == low ? lower : upper)++ = entry;
  }
}

// Splits a set if less than three quarters of the entries are free, and more while the hash's set
// is full.
void SlotCache::split_sets_for(KeyHash hash) {
  if (growing_.may_split() && 4 * held_ >= growing_.count() * kWays) split();
  for (int i = 0; i < kMostSplits && growing_.may_split() && full(set_of(hash.bits())); ++i)
    split();
}

void SlotCache::put(KeyHash hash, Slot slot) {
  if (growing_.count() == 0) return;
  for (Entry& entry : set_of(hash.bits()).entries) {
    if (entry.hash != hash.bits() || entry.slot == 0) continue;
    if (slot.empty()) --held_;
    entry = slot.empty() ? Entry{} : Entry{.hash = hash.bits(), .slot = slot.bits};
    return;
  }
  if (slot.empty()) return;
  split_sets_for(hash);
  Set& set = set_of(hash.bits());
  Entry* const free = std::ranges::find(set.entries, std::uint64_t{0}, &Entry::slot);
  if (free != std::end(set.entries)) ++held_;
  *(free != std::end(set.entries) ? free : free - 1) = {.hash = hash.bits(), .slot = slot.bits};
}

void SlotCache::clear() {
  if (!memory_.give_back()) std::fill_n(sets_, growing_.count(), Set{});
  growing_.reset();
  held_ = 0;
}

}  // namespace rkv::client
