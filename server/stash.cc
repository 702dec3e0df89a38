#include "server/stash.h"

#include "common/check.h"

namespace rkv::server {

Stash::Stash(std::uint32_t pair_count, std::uint32_t capacity)
    : capacity_(capacity),
      heads_(std::make_unique<std::uint32_t[]>(pair_count)),
      entries_(std::make_unique_for_overwrite<Entry[]>(std::size_t{capacity} + 1)) {}

std::optional<std::uint32_t> Stash::take() {
  const std::scoped_lock lock(pool_mutex_);
  if (free_ != kNone) {
    const std::uint32_t entry = free_;
    free_ = entries_[entry].next;
    return entry;
  }
  if (untouched_ > capacity_) return std::nullopt;
  return untouched_++;
}

void Stash::give_back(std::uint32_t entry) {
  const std::scoped_lock lock(pool_mutex_);
  entries_[entry].next = free_;
  free_ = entry;
}

void Stash::add(std::uint32_t pair, std::uint32_t entry, std::uint32_t side, Slot slot) {
  entries_[entry] = {.slot_bits = slot.bits, .next = heads_[pair], .side = side};
  heads_[pair] = entry;
  count_.fetch_add(1, std::memory_order_relaxed);
}

void Stash::remove(std::uint32_t pair, std::uint32_t entry) {
  std::uint32_t* link = &heads_[pair];
  while (*link != entry) {
    RKV_CHECK(*link != kNone, "stash entry not on its pair's chain");
    link = &entries_[*link].next;
  }
  *link = entries_[entry].next;
  count_.fetch_sub(1, std::memory_order_relaxed);
  give_back(entry);
}

std::uint32_t Stash::first_of(std::uint32_t pair, std::uint32_t side) const {
  std::uint32_t entry = heads_[pair];
  while (entry != kNone && entries_[entry].side != side)
    entry = entries_[entry].next;
  return entry;
}

}  // namespace rkv::server
