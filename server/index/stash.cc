#include "server/index/stash.h"

#include "common/check.h"

namespace rkv::server {

Stash::Stash(std::uint32_t capacity)
    : capacity_(capacity),
      entries_(std::make_unique_for_overwrite<Entry[]>(std::size_t{capacity} + 1)) {}

std::optional<std::uint32_t> Stash::take() {
  const MutexLock lock(pool_mutex_);
  if (free_ != kNone) {
    const std::uint32_t entry = free_;
    free_ = entries_[entry].next;
    return entry;
  }
  if (untouched_ > capacity_) return std::nullopt;
  return untouched_++;
}

void Stash::give_back(std::uint32_t entry) {
  const MutexLock lock(pool_mutex_);
  entries_[entry].next = free_;
  free_ = entry;
}

void Stash::add(Chain& chain, std::uint32_t entry, std::uint32_t side, Slot slot) {
  entries_[entry] = {
      .slot_bits = slot.bits, .next = chain, .side = static_cast<std::uint16_t>(side), .uses = 1};
  chain = entry;
  count_.fetch_add(1, std::memory_order_relaxed);
}

void Stash::take_off(Chain& chain, std::uint32_t entry) {
  std::uint32_t* link = &chain;
  while (*link != entry) {
    RKV_CHECK(*link != kNone, "stash entry not on its pair's chain");
    link = &entries_[*link].next;
  }
  *link = entries_[entry].next;
}

void Stash::remove(Chain& chain, std::uint32_t entry) {
  take_off(chain, entry);
  count_.fetch_sub(1, std::memory_order_relaxed);
  give_back(entry);
}

void Stash::move(Chain& from, Chain& to, std::uint32_t entry) {
  take_off(from, entry);
  entries_[entry].next = to;
  to = entry;
}

bool Stash::reaches(Chain chain, std::uint32_t entries) const {
  std::uint32_t entry = chain;
  for (; entries != 0 && entry != kNone; --entries)
    entry = entries_[entry].next;
  return entries == 0;
}

std::uint32_t Stash::first_of(Chain chain, std::uint32_t side) const {
  std::uint32_t entry = chain;
  while (entry != kNone && entries_[entry].side != side)
    entry = entries_[entry].next;
  return entry;
}

std::uint32_t Stash::last_of(Chain chain, std::uint32_t side) const {
  std::uint32_t last = kNone;
  for (std::uint32_t entry = chain; entry != kNone; entry = entries_[entry].next)
    if (entries_[entry].side == side) last = entry;
  return last;
}

}  // namespace rkv::server
