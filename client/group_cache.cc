#include "client/group_cache.h"

#include <algorithm>
#include <bit>

#include "common/random.h"

namespace rkv::client {

namespace {
constexpr std::size_t kSetBytes = GroupCache::kWays * (kGroupBytes + 8);
}

GroupCache::GroupCache(std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t sets = std::max<std::size_t>(1, bytes / kSetBytes);
  memory_ = LazyMemory(sets * kSetBytes);
  if (memory_.data() == nullptr) return;
  set_count_ = sets;
  // Zero pages are free tags and empty groups: nothing needs to be constructed.
  tags_ = static_cast<Tags*>(memory_.data());
  groups_ = reinterpret_cast<Group*>(tags_ + sets);
  statistics_.capacity = sets * kWays;
}

std::size_t GroupCache::set_of(GroupPlace place) const {
  // Multiply-shift maps 32 hash bits onto any number of sets below 2^32.
  return static_cast<std::size_t>(((mix64(place.bits()) >> 32) * set_count_) >> 32);
}

std::size_t GroupCache::way_of(const Tags& tags, GroupPlace place) {
  const std::uint64_t wanted = place.bits() | kHeld;
  std::size_t way = 0;
  while (way < kWays && (tags.way[way] & ~kRecent) != wanted)
    ++way;
  return way;
}

const Group* GroupCache::find(GroupPlace place) {
  if (set_count_ == 0) return nullptr;
  const std::size_t set = set_of(place);
  const std::size_t way = way_of(tags_[set], place);
  if (way == kWays) {
    ++statistics_.misses;
    return nullptr;
  }
  ++statistics_.hits;
  tags_[set].way[way] |= kRecent;
  return &groups_[set * kWays + way];
}

std::size_t GroupCache::victim(Tags& tags) {
  for (std::size_t way = 0; way < kWays; ++way) {
    if (tags.way[way] == 0) {
      ++statistics_.groups;
      return way;
    }
  }
  ++statistics_.evictions;
  // Second chance: the first that was not used since it was last passed over.
  for (std::size_t i = 0; i < kWays; ++i) {
    const std::size_t way = hand_++ % kWays;
    if ((tags.way[way] & kRecent) == 0) return way;
    tags.way[way] &= ~kRecent;
  }
  return hand_++ % kWays;
}

void GroupCache::put(GroupPlace place, const Group& group) {
  if (set_count_ == 0) return;
  const std::size_t set = set_of(place);
  std::size_t way = way_of(tags_[set], place);
  if (way == kWays) way = victim(tags_[set]);
  tags_[set].way[way] = place.bits() | kHeld | kRecent;
  groups_[set * kWays + way] = group;
}

void GroupCache::invalidate(GroupPlace place) {
  if (set_count_ == 0) return;
  const std::size_t set = set_of(place);
  const std::size_t way = way_of(tags_[set], place);
  if (way == kWays) return;
  tags_[set].way[way] = 0;
  --statistics_.groups;
}

void GroupCache::clear() {
  if (!memory_.give_back()) std::fill_n(tags_, set_count_, Tags{});
  statistics_.groups = 0;
}

void GroupCache::patch(GroupPlace place, Slot slot) {
  if (set_count_ == 0 || slot.empty()) return;
  const std::size_t set = set_of(place);
  const std::size_t way = way_of(tags_[set], place);
  if (way == kWays) return;
  Group& group = groups_[set * kWays + way];
  std::uint64_t* same = nullptr;
  std::uint64_t* empty = nullptr;
  for (std::uint64_t& word : group.slots) {
    const Slot held{word};
    if (held.empty()) {
      if (empty == nullptr) empty = &word;
    } else if (held.fingerprint() == slot.fingerprint()) {
      if (same != nullptr) return invalidate(place);
      same = &word;
    }
  }
  if (same != nullptr) {
    *same = slot.bits;
  } else if (empty != nullptr) {
    *empty = slot.bits;
  }
}

GroupCache::Statistics GroupCache::statistics() const {
  return statistics_;
}

}  // namespace rkv::client
