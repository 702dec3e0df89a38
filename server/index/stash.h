// Stash: slots of keys whose two groups are full. Only the server sees the stash. The home group of
// a stashed key is flagged `spilled`, so that a client's miss there becomes a request.
//
// Entries come from one pool of fixed size and are chained per pair. The owner of the pair keeps
// the head of the chain. Memory of the pool is touched only as far as the stash was ever filled.
//
// Thread safety: take() and give_back() from any thread (they take a lock of the stash, innermost).
// All other operations under the lock of the chain's pair. count() is a snapshot.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::server {

class Stash {
 public:
  static constexpr std::uint32_t kNone = 0;  // entries are numbered from 1

  using Chain = std::uint32_t;  // number of the first entry

  explicit Stash(std::uint32_t capacity);

  // Reserves an entry for a later add(). Nothing if all are in use.
  std::optional<std::uint32_t> take();
  void give_back(std::uint32_t entry);

  // `side` is the lowest bit of the home group's number: its place in the pair.
  void add(Chain& chain, std::uint32_t entry, std::uint32_t side, Slot slot);
  // Removes the entry from the pair's chain and gives it back.
  void remove(Chain& chain, std::uint32_t entry);
  // Moves the entry from one chain to another.
  void move(Chain& from, Chain& to, std::uint32_t entry);

  // To walk a chain, go from its first entry to kNone.
  std::uint32_t next(std::uint32_t entry) const { return entries_[entry].next; }
  std::uint32_t side(std::uint32_t entry) const { return entries_[entry].side; }
  Slot slot(std::uint32_t entry) const { return {entries_[entry].slot_bits}; }
  void set_slot(std::uint32_t entry, Slot slot) { entries_[entry].slot_bits = slot.bits; }
  // Recent uses of the entry, at most three. take_use() returns false when none is left.
  void add_use(std::uint32_t entry) const {
    if (entries_[entry].uses != 3) ++entries_[entry].uses;
  }
  std::uint32_t uses(std::uint32_t entry) const { return entries_[entry].uses; }
  bool take_use(std::uint32_t entry) const {
    if (entries_[entry].uses == 0) return false;
    --entries_[entry].uses;
    return true;
  }
  // Whether the chain has at least so many entries.
  bool reaches(Chain chain, std::uint32_t entries) const;
  // The first entry of that side, the newest, and the last one; or kNone.
  std::uint32_t first_of(Chain chain, std::uint32_t side) const;
  std::uint32_t last_of(Chain chain, std::uint32_t side) const;

  // Relaxed: a statistic; no decision depends on it.
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  struct Entry {  // trivial, so that allocating the pool touches no page
    std::uint64_t slot_bits;
    std::uint32_t next;
    std::uint16_t side;
    std::uint16_t uses;
  };

  void take_off(Chain& chain, std::uint32_t entry);

  std::uint32_t capacity_;
  std::unique_ptr<Entry[]> entries_;
  std::atomic<std::uint64_t> count_{0};
  Mutex pool_mutex_;
  std::uint32_t free_ RKV_GUARDED_BY(pool_mutex_) = kNone;
  // Entries from this one on have never been used.
  std::uint32_t untouched_ RKV_GUARDED_BY(pool_mutex_) = 1;
};

}  // namespace rkv::server
