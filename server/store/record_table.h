// RecordTable: the records in memory. It has the index that finds them, the blocks that hold them,
// and the locks that guard both. The classes that carry out operations are built on it.
//
//   const RecordTable::Locked locked(table, hash);
//   const Target at = table.target(hash, locked, key);
//   if (at.found) use(table.record_at(at.found->slot.location()));
//
// Invariants, true whenever the pair's lock is free:
//  TABLE-1  Each slot of a record in memory leads to one live record, and each live record has one
//      slot.
//  TABLE-2  A block belongs to one record, or to the operation that allocated it, or to the
//      allocator.
//
// Thread safety: record_at, version_at, supersede, erase and target under the lock of the key's
// pair (Locked). All others from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/layout.h"
#include "common/mutex.h"
#include "server/index/index.h"
#include "server/index/pair_locks.h"
#include "server/memory/memory.h"
#include "server/memory/publish_hooks.h"
#include "server/memory/record_allocator.h"

namespace rkv::server {

// The words of a record in shared memory. The first is its checksum word.
inline std::uint64_t* words_of(std::byte* record) {
  return reinterpret_cast<std::uint64_t*>(record);
}

// A key under its pair's lock.
struct Target {
  KeyHash hash;
  GroupPlace home;
  std::optional<Index::Position> found;
  StripeCounters* counters;
  // For a load: the slot that says this key is on disk.
  std::optional<Index::Position> on_disk = std::nullopt;
};

class RecordTable {
 public:
  // `memory` and `clock` must outlive the table.
  RecordTable(StoreMemory& memory, const Clock& clock)
      : memory_(memory), index_(memory), blocks_(memory, clock) {}

  StoreMemory& memory() const { return memory_; }
  Index& index() { return index_; }
  const Index& index() const { return index_; }
  RecordAllocator& blocks() { return blocks_; }
  const RecordAllocator& blocks() const { return blocks_; }
  const PairLocks& locks() const { return locks_; }

  // Locks the pair of a key's home. While it is held, no other thread changes the key or moves its
  // home. Blocks while another operation holds the pair.
  class Locked {
   public:
    Locked(const RecordTable& table, KeyHash hash) {
      for (;;) {
        home = table.memory_.home(hash);
        stripe_ = &table.locks_.of(home);
        guard_ = std::unique_lock(stripe_->mutex);
        if (table.memory_.home(hash) == home) return;  // (SEGMENT-1)
        guard_.unlock();                               // the segment was split meanwhile
      }
    }
    void unlock() { guard_.unlock(); }
    // Not analysed: the key decides which lock this object holds.
    StripeCounters& counters() const RKV_NO_THREAD_SAFETY_ANALYSIS { return stripe_->counters; }
    GroupPlace home;

   private:
    PairLocks::Stripe* stripe_ = nullptr;
    std::unique_lock<Mutex> guard_;
  };

  // Begins to fetch the group of a key. A hint: without a lock, the home may move.
  void prefetch(Bytes key) const { index_.prefetch(memory_.home(memory_.hash(key))); }

  Target target(KeyHash hash, const Locked& locked, Bytes key) const {
    return {hash, locked.home, index_.find(locked.home, hash, key), &locked.counters()};
  }
  // The record in `block`. The spans point into shared memory.
  RecordFields record_at(Location block) const;
  Version version_at(Location block) const {
    return {load_word(words_of(memory_.record(block)) + 1)};
  }
  // Marks a record as replaced or deleted. REQUIRES: the record is live, so its checksum word is
  // the bare checksum.
  void supersede(Location block) {
    std::uint64_t* word = words_of(memory_.record(block));
    publish_word(Step::kRecordSuperseded, word, load_word(word) ^ kSupersededMask);
  }
  // Removes the record and its slot. The caller logs the removal and releases the block.
  void erase(const Target& target);
  // Frees the block of a record. REQUIRES: no slot leads to the record and it is not live
  // (STORE-5), so only the caller uses the block.
  void release(Slot gone);
  // Units of a record's block. REQUIRES: the block was not released.
  std::uint64_t units_of(Slot slot) const;

  // ---- iteration over all pairs

  struct Pair {
    GroupPlace even;
    StripeCounters& counters;
    std::uint32_t depth = 0;
  };
  // Calls visit(Pair) for one pair under its lock. Returns false if the segment was split
  // meanwhile; the caller retries.
  template <class Visit>
  bool visit_pair(KeyHash prefix, std::uint32_t pair, std::uint32_t* depth, Visit visit) const;
  // Visits all pairs in the order of prefixes. If a segment is split during the walk, its new
  // segment is either visited later, or was created entirely after the walk began.
  template <class Visit>
  void for_each_pair(Visit visit) const;

  static KeyHash hash_of_prefix(std::uint32_t prefix) {
    return KeyHash(std::uint64_t{prefix} << (64 - KeyHash::kPrefixBits));
  }
  // Returns the first prefix after the segment; 0 after the last.
  static std::uint32_t next_prefix(std::uint32_t prefix, std::uint32_t depth) {
    constexpr std::uint32_t kPrefixMask = (1U << KeyHash::kPrefixBits) - 1;
    const std::uint32_t span = 1U << (KeyHash::kPrefixBits - depth);
    return ((prefix & ~(span - 1)) + span) & kPrefixMask;
  }

 private:
  StoreMemory& memory_;
  Index index_;
  RecordAllocator blocks_;
  PairLocks locks_;
};

inline RecordFields RecordTable::record_at(Location block) const {
  // Plain reads: the pair's lock keeps the record whole.
  const std::byte* record = memory_.record(block);
  const auto lengths = load_le<std::uint64_t>(record + 16);
  const bool has_expiry = (lengths & kRecordExpiryFlag) != 0;
  const std::byte* key = record + record_key_offset(lengths);
  const std::size_t key_bytes = record_key_length(lengths);
  const std::size_t value_bytes = lengths >> 32;
  return {.version = {load_le<std::uint64_t>(record + 8)},
          .expiry_ms =
              has_expiry ? load_le<std::uint64_t>(record + kRecordHeaderBytes) : std::uint64_t{0},
          .counter = (lengths & kRecordCounterFlag) != 0,
          .in_cell = (lengths & kRecordCellFlag) != 0,
          .key = {key, key_bytes},
          .value = {record + record_head_bytes(key_bytes, value_bytes, has_expiry), value_bytes},
          .digest = (lengths & kRecordDigestFlag) != 0 ? load_le<std::uint64_t>(key - kDigestBytes)
                                                       : std::uint64_t{0}};
}

template <class Visit>
bool RecordTable::visit_pair(KeyHash prefix, std::uint32_t pair, std::uint32_t* depth,
                             Visit visit) const {
  const Segments& segments = memory_.segments();
  const Segment segment = segments.route(prefix);
  const GroupPlace even = segments.group(segment, 2 * pair);
  PairLocks::Stripe& stripe = locks_.of(even);
  const MutexLock lock(stripe.mutex);
  if (segments.route(prefix) != segment) return false;
  *depth = segment.depth;
  visit(Pair{.even = even, .counters = stripe.counters, .depth = segment.depth});
  return true;
}

template <class Visit>
void RecordTable::for_each_pair(Visit visit) const {
  std::uint32_t prefix = 0;
  do {
    std::uint32_t depth = 0;
    for (std::uint32_t pair = 0; pair < memory_.groups_per_segment() / 2; ++pair) {
      while (!visit_pair(hash_of_prefix(prefix), pair, &depth, visit)) {
      }
    }
    prefix = next_prefix(prefix, depth);
  } while (prefix != 0);
}

}  // namespace rkv::server
