// Index: where the record of a key is. Groups in shared memory, which clients READ, and the stash
// for keys that found no room there.
//
//   auto lock = ...the pair's lock...;
//   if (auto at = index.find(home, hash, key)) index.replace(home, *at, new_slot);
//
// Invariants, true whenever the pair's lock is free:
//  I1  A group verifies, and its change counter has risen with every publication.
//  I2  overflow is set in a group exactly if its neighbour holds a key whose home it is (a guest).
//  I3  spilled is set in a group exactly if the stash holds a key whose home it is, or records are
//      still being loaded (all_spilled).
//  I4  While a pair has stashed keys, neither of its groups has a free slot.
//  I5  While a group has guests next door, it has no free slot.
//  I6  All groups of a segment have the depth and prefix of its route, and hold keys of that prefix
//      only.
//  I7  A key whose record is on disk and not in memory has a slot of its own that says so, unless
//      records are still being loaded. There may be more such slots than keys.
//  I8  A pair has at most kLongestChain stashed keys. So an operation looks at a bounded number of
//      slots, whatever keys clients choose: they can READ the hash seed.
// And while the lock is held, at every instant: a key that the index holds throughout can be found
// by a reader that follows the flags (DESIGN.md, "Whereabouts").
//
// Thread safety: all of it under the pair's lock, except release(), add_extent() (one thread) and
// the counts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/memory.h"
#include "server/stash.h"

namespace rkv::server {

class Index {
 public:
  enum class Where : std::uint8_t { kHome, kNeighbour, kStash };
  // A place for a slot: number of the slot in its group, or the stash entry.
  struct Position {
    Where where = Where::kHome;
    std::uint32_t number = 0;
    Slot slot = {};  // what is there; empty for a vacancy
  };

  // Knows the index extents that there are.
  explicit Index(StoreMemory& memory);
  // Books for a new index extent, before any of its segments is used.
  void add_extent(const StoreMemory::Extent& extent);

  // The key's position. Reads the records whose fingerprint matches.
  std::optional<Position> find(GroupPlace home, KeyHash hash, Bytes key) const;
  // Asks the processor for what find() and insert() of a key with this home will look at. No lock.
  void prefetch(GroupPlace home) const;
  // The position of the record with this version, whatever its key.
  std::optional<Position> find_version(GroupPlace home, KeyHash hash, Version version) const;
  // One of the slots that say of a key with this hash that its record is on disk alone.
  std::optional<Position> find_on_disk(GroupPlace home, KeyHash hash) const;
  // Where a key that is in neither group may be inserted: home, neighbour, stash, in this order.
  // Nothing: all are full, or as much of the stash as the pair may have (is_crowded). A vacancy
  // goes to insert() or release(), under the same lock.
  std::optional<Position> vacancy(GroupPlace home);
  void release(const Position& vacancy);
  // Whether the pair has as many stashed keys as it may have (I8).
  bool is_crowded(GroupPlace home) const { return stash_.reaches(stashed_at(home), kLongestChain); }
  // By chance four pairs in 10^9 come to it, at twice as many keys as slots: where the index has
  // not been able to grow for long.
  static constexpr std::uint32_t kLongestChain = 128;

  // Publications. They cannot fail.
  void insert(GroupPlace home, const Position& vacancy, Slot slot);
  void replace(GroupPlace home, const Position& position, Slot slot);
  // Also moves a key of the pair into the place that became free, if one waits for it (I4, I5).
  void erase(GroupPlace home, const Position& position);

  std::uint64_t stashed() const { return stash_.count(); }

  // ---- checks (index_check.cc)

  // A slot, the home of its key, and a word for what is wrong with it; "": nothing.
  using CheckSlot = std::function<std::string(GroupPlace home, Slot slot)>;
  // What is wrong with a pair of this segment, or nothing (I1 to I6). Adds to `stashed`.
  std::string check_pair(GroupPlace even, std::uint32_t depth, const CheckSlot& check,
                         std::uint64_t& stashed) const;

  // ---- records that are on disk alone (store_disk.cc)

  // While set, every group is `spilled`: which keys there are is not known yet (I3). Whoever
  // changes it then calls refresh_spilled() for every pair.
  void set_all_spilled(bool all) { all_spilled_.store(all, std::memory_order_seq_cst); }
  bool all_spilled() const { return all_spilled_.load(std::memory_order_seq_cst); }
  void refresh_spilled(GroupPlace even);

  // A slot in one of the groups of a pair, as the eviction sees it.
  struct Resident {
    GroupPlace home;
    Position position;
  };
  // Calls visit(Resident) for the slots of the pair, stashed ones included, that lead to records in
  // memory and have no uses left; each of the others has one fewer then (three at most are
  // counted). `visit` may replace() or erase() the slot that it is shown.
  template <class Visit>
  void pass(GroupPlace even, Visit visit);
  // The slot was used; those that may be this key's were used.
  void touch(GroupPlace home, const Position& position) const;
  void touch(GroupPlace home, KeyHash hash) const;
  KeyHash hash_of(Slot slot) const;  // REQUIRES: not on disk

  // ---- growth (index_split.cc)

  // Whether so many keys of the segment are stashed that it should be split: 1/20 of its slots,
  // when it has as many keys as slots. Earlier would cost memory (1/32: 12.6 index bytes a key over
  // a doubling instead of 11.8), later questions to the server. Any thread, no lock: a hint.
  bool wants_split(Segment segment) const;
  // Divides the keys of `from` (depth d) between `from` and the unused segment `to`, which get
  // depth d + 1, and leads everybody there. REQUIRES every pair lock of `from`.
  void split(Segment from, Segment to);

  // Keys that the stash can take. 1/8 of the slots: at 90 % of the slots in use 1.6 % of the keys
  // are stashed, at 100 % 5 %, and 8 + 8/8 bytes of slot and entry a key stay small change.
  static std::uint32_t stash_capacity(std::uint64_t slot_count);

 private:
  // One publication of a group: at most one slot, and flags.
  struct Edit {
    std::uint32_t slot_number = kSlotsPerGroup;  // none
    Slot slot = {};
    std::optional<bool> overflow = std::nullopt;
    std::optional<bool> spilled = std::nullopt;
  };
  // What the server knows of an index extent and clients do not.
  struct Books {
    std::unique_ptr<std::uint32_t[]> guests;  // by group; bit i: slot i holds a guest
    std::unique_ptr<std::uint64_t[]> uses;    // by group; bits 2i and 2i + 1: how often lately
    std::unique_ptr<Stash::Chain[]> stashed;  // by pair
    std::unique_ptr<std::atomic<std::uint32_t>[]> stashed_in;  // by segment: how many
  };
  void publish(GroupPlace place, const Edit& edit);
  std::string check_group(GroupPlace place, std::uint32_t depth, const CheckSlot& check) const;

  void insert_guest(GroupPlace home, std::uint32_t slot_number, Slot slot);
  void erase_guest(GroupPlace home, std::uint32_t slot_number);
  void clear_spilled_if_none_left(GroupPlace home);
  // False: nobody waited for the slot.
  bool fill(GroupPlace place, std::uint32_t slot_number);
  void take_from_stash(GroupPlace home, std::uint32_t entry, Position to);

  static constexpr std::uint64_t kUsedOnce = 0x5555'5555'5555'5555U;
  static void add_use(std::uint64_t& uses, std::uint32_t slot) {
    if ((uses >> (2 * slot) & 3U) != 3) uses += std::uint64_t{1} << (2 * slot);
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
  // `matches(slot)` for slots of the fingerprint.
  template <class Matches>
  std::optional<std::uint32_t> find_in(GroupPlace place, KeyHash hash, Matches matches) const;
  template <class Matches>
  std::optional<Position> find_if(GroupPlace home, KeyHash hash, Matches matches) const;
  std::optional<std::uint32_t> free_slot(GroupPlace place) const;
  static std::uint32_t side(GroupPlace place) { return place.number & 1U; }

  StoreMemory& memory_;
  Stash stash_;
  std::unique_ptr<Books[]> books_;  // by extent, kMaxExtents
  std::atomic<bool> all_spilled_{false};
};

template <class Visit>
void Index::pass(GroupPlace even, Visit visit) {
  for (const GroupPlace place : {even, even.neighbour()}) {
    std::uint64_t& uses = this->uses(place);
    const std::uint32_t abroad = guests(place);
    for (std::uint32_t i = 0; i < kSlotsPerGroup; ++i) {
      const Slot slot{memory_.group(place)->slots[i]};
      if (slot.empty() || slot.is_on_disk()) continue;
      if (const std::uint64_t count = uses >> (2 * i) & 3U; count != 0) {
        uses -= std::uint64_t{1} << (2 * i);
        continue;
      }
      const bool guest = (abroad >> i & 1U) != 0;
      visit(Resident{
          .home = guest ? place.neighbour() : place,
          .position = {
              .where = guest ? Where::kNeighbour : Where::kHome, .number = i, .slot = slot}});
    }
  }
  for (std::uint32_t entry = stashed_at(even), next = 0; entry != Stash::kNone; entry = next) {
    next = stash_.next(entry);
    const Slot slot = stash_.slot(entry);
    if (slot.is_on_disk() || stash_.take_use(entry)) continue;
    visit(Resident{.home = stash_.side(entry) == 0 ? even : even.neighbour(),
                   .position = {.where = Where::kStash, .number = entry, .slot = slot}});
  }
}

}  // namespace rkv::server
