// Index: where the record of a key is. Groups in shared memory, which clients READ, and the stash
// for keys that found no room there.
//
//   auto lock = ...the pair's lock...;
//   if (auto at = index.find(home, hash, key)) index.replace(home, *at, new_slot);
//
// Invariants, true whenever the pair's lock is free:
//  I1  A group verifies, and its change counter has risen with every publication.
//  I2  overflow is set in a group exactly if its neighbour holds a key whose home it is (a guest).
//  I3  spilled is set in a group exactly if the stash holds a key whose home it is.
//  I4  While a pair has stashed keys, neither of its groups has a free slot.
//  I5  While a group has guests next door, it has no free slot.
// And while the lock is held, at every instant: a key that the index holds throughout can be found
// by a reader that follows the flags (DESIGN.md, "Whereabouts").
//
// Thread safety: all of it under the pair's lock, except release() and the counts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

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

  explicit Index(const StoreMemory& memory);

  std::uint32_t pair(GroupPlace home) const { return memory_.group_ordinal(home) / 2; }
  std::uint32_t pair_count() const { return memory_.group_count() / 2; }

  // The key's position. Reads the records whose fingerprint matches.
  std::optional<Position> find(GroupPlace home, KeyHash hash, Bytes key) const;
  // Where a key that is in neither group may be inserted: home, neighbour, stash, in this order.
  // Nothing: all are full. A vacancy goes to insert() or release(), under the same lock.
  std::optional<Position> vacancy(GroupPlace home);
  void release(const Position& vacancy);

  // Publications. They cannot fail.
  void insert(GroupPlace home, const Position& vacancy, Slot slot);
  void replace(GroupPlace home, const Position& position, Slot slot);
  // Also moves a key of the pair into the place that became free, if one waits for it (I4, I5).
  void erase(GroupPlace home, const Position& position);

  std::uint64_t stashed() const { return stash_.count(); }

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
  void publish(GroupPlace place, const Edit& edit);

  void insert_guest(GroupPlace home, std::uint32_t slot_number, Slot slot);
  void erase_guest(GroupPlace home, std::uint32_t slot_number);
  void clear_spilled_if_none_left(GroupPlace home);
  void fill(GroupPlace place, std::uint32_t slot_number);
  void take_from_stash(GroupPlace home, std::uint32_t entry, Position to);

  // Bit i: slot i of the group holds a guest. By group ordinal.
  std::uint32_t& guests(GroupPlace place) { return guests_[memory_.group_ordinal(place)]; }
  bool key_at(Slot slot, Bytes key) const;
  std::optional<std::uint32_t> find_in(GroupPlace place, KeyHash hash, Bytes key) const;
  static std::uint32_t side(GroupPlace place) { return place.number & 1U; }

  const StoreMemory& memory_;
  Stash stash_;
  std::unique_ptr<std::uint32_t[]> guests_;
};

}  // namespace rkv::server
