#include "client/get/group_cache.h"

#include <algorithm>

namespace rkv::client {

namespace {
constexpr std::size_t kSetBytes = GroupCache::kWays * (kGroupBytes + 8);
}

GroupCache::GroupCache(std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t sets = std::max<std::size_t>(1, bytes / kSetBytes);
  tags_memory_ = LazyMemory(sets * sizeof(Tags));
  groups_memory_ = LazyMemory(sets * kWays * sizeof(Group));
  if (tags_memory_.data() == nullptr || groups_memory_.data() == nullptr) return;
  sets_ = GrowingSets(sets);
  // Zero pages are free tags and empty groups: nothing needs to be constructed.
  tags_ = static_cast<Tags*>(tags_memory_.data());
  groups_ = static_cast<Group*>(groups_memory_.data());
  statistics_.capacity = sets * kWays;
}

std::size_t GroupCache::way_of(const Tags& tags, GroupPlace place) {
  const std::uint64_t wanted = place.bits() | kHeld;
  std::size_t way = 0;
  while (way < kWays && (tags.way[way] & ~kRecent) != wanted)
    ++way;
  return way;
}

const Group* GroupCache::find(GroupPlace place) {
  if (sets_.count() == 0) return nullptr;
  const std::size_t set = set_of(place.bits());
  const std::size_t way = way_of(tags_[set], place);
  if (way == kWays) {
    ++statistics_.misses;
    return nullptr;
  }
  ++statistics_.hits;
  tags_[set].way[way] |= kRecent;
  return &groups_[set * kWays + way];
}

bool GroupCache::full(const Tags& tags) {
  return std::ranges::find(tags.way, 0U) == std::end(tags.way);
}

void GroupCache::split() {
  const auto [from, low, high] = sets_.split();
  const Tags tags = tags_[from];
  for (std::size_t way = 0; way < kWays; ++way) {
    if (tags.way[way] == 0) continue;
    const std::size_t to = set_of(tags.way[way] & ~(kHeld | kRecent));
    if (to == from) continue;
    tags_[to].way[way] = tags.way[way];
    tags_[from].way[way] = 0;
    groups_[to * kWays + way] = groups_[from * kWays + way];
  }
}

// Splits a set if less than three quarters of the ways are free, and more while the place's set is
// full.
void GroupCache::split_sets_for(GroupPlace place) {
  if (sets_.may_split() && 4 * statistics_.groups >= sets_.count() * kWays) split();
  for (int i = 0; i < kMostSplits && sets_.may_split() && full(tags_[set_of(place.bits())]); ++i)
    split();
}

std::size_t GroupCache::victim(Tags& tags) {
  for (std::size_t way = 0; way < kWays; ++way) {
    if (tags.way[way] == 0) {
      ++statistics_.groups;
      return way;
    }
  }
  ++statistics_.evictions;
  // Second chance: takes the first way that was not used since the hand last passed it.
  for (std::size_t i = 0; i < kWays; ++i) {
    const std::size_t way = hand_++ % kWays;
    if ((tags.way[way] & kRecent) == 0) return way;
    tags.way[way] &= ~kRecent;
  }
  return hand_++ % kWays;
}

void GroupCache::put(GroupPlace place, const Group& group) {
  if (sets_.count() == 0) return;
  std::size_t set = set_of(place.bits());
  std::size_t way = way_of(tags_[set], place);
  if (way == kWays) {
    split_sets_for(place);
    set = set_of(place.bits());
    way = victim(tags_[set]);
  }
  tags_[set].way[way] = place.bits() | kHeld | kRecent;
  groups_[set * kWays + way] = group;
}

void GroupCache::invalidate(GroupPlace place) {
  if (sets_.count() == 0) return;
  const std::size_t set = set_of(place.bits());
  const std::size_t way = way_of(tags_[set], place);
  if (way == kWays) return;
  tags_[set].way[way] = 0;
  --statistics_.groups;
}

void GroupCache::clear() {
  groups_memory_.give_back();
  if (!tags_memory_.give_back()) std::fill_n(tags_, sets_.count(), Tags{});
  sets_.reset();
  statistics_.groups = 0;
}

void GroupCache::patch(GroupPlace place, Slot slot) {
  if (sets_.count() == 0 || slot.empty()) return;
  const std::size_t set = set_of(place.bits());
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
