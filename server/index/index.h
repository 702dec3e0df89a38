// Index: maps each key to the location of its record. Groups in shared memory, which clients READ,
// and the stash for keys whose two groups are full.
//
//   auto lock = ...the pair's lock...;
//   if (auto at = index.find(home, hash, key)) index.replace(home, *at, new_slot);
//
// Invariants, true whenever the pair's lock is free:
//  INDEX-1  A group verifies, and every publication has raised its change counter.
//  INDEX-2  `overflow` is set in a group exactly if the neighbour holds a key whose home is this
//      group (a guest).
//  INDEX-3  `spilled` is set in a group exactly if the stash holds a key whose home is this group,
//      or if records are still being loaded (all_spilled).
//  INDEX-4  While a pair has stashed keys, neither group of the pair has a free slot.
//  INDEX-5  While a group has guests in the neighbour, it has no free slot.
//  INDEX-6  All groups of a segment have the depth and prefix of the segment's route, and hold only
//      keys of that prefix.
//  INDEX-7  A key whose record is on disk only has a slot that says so, unless records are still
//      being loaded. There may be more of these slots than keys.
//  INDEX-8  A pair has at most kLongestChain stashed keys. So an operation scans a bounded number
//      of slots, whatever keys clients choose: clients can READ the hash seed.
// While the lock is held, a further invariant holds at every instant. A reader that follows the
// flags finds every key that the index holds throughout (DESIGN.md, "Whereabouts").
//
// Thread safety: all operations under the pair's lock, unless their comment says otherwise.
// release() and the counts: any thread. add_extent(): one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/index/due_times.h"
#include "server/index/stash.h"
#include "server/memory/memory.h"

namespace rkv::server {

class Index {
 public:
  enum class Where : std::uint8_t { kHome, kNeighbour, kStash };
  // Place of a slot: the number of the slot in its group, or of the stash entry.
  struct Position {
    Where where = Where::kHome;
    std::uint32_t number = 0;
    Slot slot = {};  // its content; empty for a vacancy
  };

  // Covers the index extents that `memory` has now.
  explicit Index(StoreMemory& memory);
  // Allocates the bookkeeping of a new index extent. Call it before a segment of the extent is
  // used.
  void add_extent(const StoreMemory::Extent& extent);

  // Returns the key's position. Reads the records whose fingerprint matches.
  std::optional<Position> find(GroupPlace home, KeyHash hash, Bytes key) const;
  // Prefetches what find() and insert() of a key with this home read. Needs no lock.
  void prefetch(GroupPlace home) const;
  // Returns the position of the record with this version, whatever its key.
  std::optional<Position> find_version(GroupPlace home, KeyHash hash, Version version) const;
  // Returns a slot that says that a record with this hash is on disk only.
  std::optional<Position> find_on_disk(GroupPlace home, KeyHash hash) const;
  // Returns a free position for a key that is in neither group: home, neighbour, stash, in this
  // order. Nothing if all are full, or if the pair has used its part of the stash (is_crowded).
  // Pass the vacancy to insert() or release(), under the same lock.
  std::optional<Position> vacancy(GroupPlace home);
  void release(const Position& vacancy);
  // Whether the pair has as many stashed keys as it may have (INDEX-8).
  bool is_crowded(GroupPlace home) const { return stash_.reaches(stashed_at(home), kLongestChain); }
  // At twice as many keys as slots, four pairs in 10^9 reach this bound by chance. An index has so
  // many keys only if it could not grow for long.
  static constexpr std::uint32_t kLongestChain = 128;

  // Publications. They cannot fail.
  void insert(GroupPlace home, const Position& vacancy, Slot slot);
  void replace(GroupPlace home, const Position& position, Slot slot);
  // Also moves a waiting key of the pair into the freed slot (INDEX-4, INDEX-5).
  void erase(GroupPlace home, const Position& position);

  std::uint64_t stashed() const { return stash_.count(); }

  // ---- checks (index_check.cc)

  // Checks a slot, given the home of its key. Returns the violation, or "".
  using CheckSlot = std::function<std::string(GroupPlace home, Slot slot)>;
  // Checks a pair of this segment (INDEX-1 to INDEX-6, INDEX-8). Returns the violation, or "". Adds
  // the number of stashed keys to `stashed`.
  std::string check_pair(GroupPlace even, std::uint32_t depth, const CheckSlot& check,
                         std::uint64_t& stashed) const;

  // ---- records that are on disk only (DiskTier)

  // While set, every group is `spilled`, because the set of existing keys is not known yet
  // (INDEX-3). After a change the caller calls refresh_spilled() for every pair.
  void set_all_spilled(bool all) { all_spilled_.store(all, std::memory_order_seq_cst); }
  bool all_spilled() const { return all_spilled_.load(std::memory_order_seq_cst); }
  void refresh_spilled(GroupPlace even);

  // A slot of a pair, as the eviction sees it.
  struct Resident {
    GroupPlace home;
    Position position;
  };
  // Calls visit(Resident) for each slot of the pair, stashed ones included, that leads to a record
  // in memory and has no uses left. Takes one use from each of the other slots in memory (a slot
  // counts three at most). `visit` may replace() or erase() the slot that it is given.
  template <class Visit>
  void pass(GroupPlace even, Visit visit) {
    walk(even, visit, /*takes_uses=*/true);
  }
  // The same for every slot in memory, whatever its uses, which stay. `visit` must not change it.
  template <class Visit>
  void each_resident(GroupPlace even, Visit visit) {
    walk(even, visit, /*takes_uses=*/false);
  }
  // Begins to fetch the records that the pair's slots lead to.
  void prefetch_residents(GroupPlace even) const;
  // Counts a use of the slot, or of every slot that may be this key's.
  void touch(GroupPlace home, const Position& position) const;
  void touch(GroupPlace home, KeyHash hash) const;
  // The uses that are counted of the slot.
  std::uint32_t uses_of(GroupPlace home, const Position& position) const;
  KeyHash hash_of(Slot slot) const;  // REQUIRES: not on disk

  // When the records of each pair may expire first. A split keeps it true (DUE-1, DUE-2).
  DueTimes& due() { return due_; }
  const DueTimes& due() const { return due_; }

  // ---- growth (index_split.cc)

  // Whether the segment has so many stashed keys that it should be split: 1/20 of its slots, which
  // it has with about as many keys as slots. Splitting earlier costs memory (1/32: 12.6 index bytes
  // a key over a doubling instead of 11.8). Splitting later costs requests to the server. Any
  // thread, no lock: a hint.
  bool wants_split(Segment segment) const;
  // Divides the keys of `from` (depth d) between `from` and the unused segment `to`. Both get depth
  // d + 1, and directory and routes lead to both. REQUIRES: every pair lock of `from`.
  void split(Segment from, Segment to);

  // Capacity of the stash: 1/8 of the slots. At 90 % of the slots in use 1.6 % of the keys are
  // stashed, at 100 % 5 %. Per key, 8 bytes of slot and 8/8 bytes of stash stay small.
  static std::uint32_t stash_capacity(std::uint64_t slot_count);

 private:
  // One publication of a group: at most one slot, and flags.
  struct Edit {
    std::uint32_t slot_number = kSlotsPerGroup;  // none
    Slot slot = {};
    std::optional<bool> overflow = std::nullopt;
    std::optional<bool> spilled = std::nullopt;
  };
  // Bookkeeping of an index extent that clients do not see.
  struct Books {
    std::unique_ptr<std::uint32_t[]> guests;  // by group; bit i: slot i holds a guest
    std::unique_ptr<std::uint64_t[]> uses;    // by group; bits 2i and 2i + 1: recent uses of slot i
    std::unique_ptr<Stash::Chain[]> stashed;  // by pair
    std::unique_ptr<std::atomic<std::uint32_t>[]> stashed_in;  // by segment: stashed keys
  };
  void publish(GroupPlace place, const Edit& edit);
  std::string check_group(GroupPlace place, std::uint32_t depth, const CheckSlot& check) const;

  void insert_guest(GroupPlace home, std::uint32_t slot_number, Slot slot);
  void erase_guest(GroupPlace home, std::uint32_t slot_number);
  void clear_spilled_if_none_left(GroupPlace home);
  // Gives a freed slot to a waiting key of the pair. Returns false if no key was waiting.
  bool fill(GroupPlace place, std::uint32_t slot_number);
  void take_from_stash(GroupPlace home, std::uint32_t entry, Position to);

  static constexpr std::uint64_t kUsedOnce = 0x5555'5555'5555'5555U;
  static void add_use(std::uint64_t& uses, std::uint32_t slot) {
    if ((uses >> (2 * slot) & 3U) != 3) uses += std::uint64_t{1} << (2 * slot);
  }
  static void set_uses(std::uint64_t& uses, std::uint32_t slot, std::uint32_t count) {
    uses = (uses & ~(std::uint64_t{3} << (2 * slot))) | std::uint64_t{count} << (2 * slot);
  }
  std::uint64_t& uses(GroupPlace place) const { return books_[place.extent].uses[place.number]; }
  std::uint32_t& guests(GroupPlace place) const {
    return books_[place.extent].guests[place.number];
  }
  Stash::Chain& stashed_at(GroupPlace place) const {
    return books_[place.extent].stashed[place.number / 2];
  }
  std::atomic<std::uint32_t>& stashed_in(GroupPlace place) const {
    return books_[place.extent].stashed_in[place.number / memory_.groups_per_segment()];
  }
  void stash(GroupPlace home, std::uint32_t entry, Slot slot);
  void unstash(GroupPlace home, std::uint32_t entry);

  // Steps of split().
  bool has_left(Slot slot, std::uint32_t depth) const;
  std::uint32_t leaving(GroupPlace place, std::uint32_t depth) const;
  void fill_new_pair(GroupPlace old_even, GroupPlace new_even,
                     const std::array<std::uint32_t, 2>& leaving, std::uint32_t depth);
  void write_new_group(GroupPlace place, const Group& group);
  void stamp_and_trim(GroupPlace even, const std::array<std::uint32_t, 2>& leaving,
                      std::uint32_t depth);
  void settle(GroupPlace even);

  bool key_at(Slot slot, Bytes key) const;
  // pass() or each_resident().
  template <class Visit>
  void walk(GroupPlace even, Visit& visit, bool takes_uses);
  // `matches(slot)` is called for slots with the fingerprint.
  template <class Matches>
  std::optional<std::uint32_t> find_in(GroupPlace place, KeyHash hash, Matches matches) const;
  template <class Matches>
  std::optional<Position> find_if(GroupPlace home, KeyHash hash, Matches matches) const;
  std::optional<std::uint32_t> free_slot(GroupPlace place) const;
  static std::uint32_t side(GroupPlace place) { return place.number & 1U; }

  StoreMemory& memory_;
  Stash stash_;
  DueTimes due_;
  std::unique_ptr<Books[]> books_;  // by extent, kMaxExtents
  std::atomic<bool> all_spilled_{false};
};

template <class Visit>
void Index::walk(GroupPlace even, Visit& visit, bool takes_uses) {
  for (const GroupPlace place : {even, even.neighbour()}) {
    std::uint64_t& uses = this->uses(place);
    const std::uint32_t abroad = guests(place);
    for (std::uint32_t i = 0; i < kSlotsPerGroup; ++i) {
      const Slot slot{memory_.group(place)->slots[i]};
      if (slot.empty() || slot.is_on_disk()) continue;
      if (takes_uses && (uses >> (2 * i) & 3U) != 0) {
        uses -= std::uint64_t{1} << (2 * i);
        continue;
      }
      const bool guest = (abroad >> i & 1U) != 0;
      const auto where = guest ? Where::kNeighbour : Where::kHome;
      visit(Resident{.home = guest ? place.neighbour() : place,
                     .position = {.where = where, .number = i, .slot = slot}});
    }
  }
  for (std::uint32_t entry = stashed_at(even), next = 0; entry != Stash::kNone; entry = next) {
    next = stash_.next(entry);
    const Slot slot = stash_.slot(entry);
    if (slot.is_on_disk() || (takes_uses && stash_.take_use(entry))) continue;
    visit(Resident{.home = stash_.side(entry) == 0 ? even : even.neighbour(),
                   .position = {.where = Where::kStash, .number = entry, .slot = slot}});
  }
}

}  // namespace rkv::server
