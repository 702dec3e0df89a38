// Splitting a segment while clients READ it. DESIGN.md, "Splitting a segment", says what each step
// prevents.
#include <array>
#include <bit>
#include <span>

#include "common/check.h"
#include "server/index/index.h"
#include "server/memory/publish_hooks.h"

namespace rkv::server {

namespace {

// The bit of the prefix that decides between the two halves of a segment of this depth.
std::uint32_t deciding_bit(std::uint32_t depth) {
  return 1U << (KeyHash::kPrefixBits - 1 - depth);
}

// A pair of the new segment while it is still private. Home groups are filled first. So a key is a
// guest only if its home is full, and stashed only if both groups are full (INDEX-4, INDEX-5).
struct NewPair {
  std::array<Group, 2> groups;
  std::array<std::uint32_t, 2> used = {};
  std::array<std::uint32_t, 2> guests = {};
  std::array<bool, 2> overflow = {};
  std::array<bool, 2> spilled = {};

  bool place_at_home(std::uint32_t home, std::uint64_t slot) {
    if (used[home] == kSlotsPerGroup) return false;
    groups[home].slots[used[home]++] = slot;
    return true;
  }
  bool place_as_guest(std::uint32_t home, std::uint64_t slot) {
    const std::uint32_t host = 1 - home;
    if (used[host] == kSlotsPerGroup) return false;
    guests[host] |= 1U << used[host];
    overflow[home] = true;
    groups[host].slots[used[host]++] = slot;
    return true;
  }
};

GroupPlace on_side(GroupPlace even, std::uint32_t side) {
  return side == 0 ? even : even.neighbour();
}

}  // namespace

bool Index::wants_split(Segment segment) const {
  const std::uint32_t slots = memory_.groups_per_segment() * kSlotsPerGroup;
  const std::uint32_t stashed =
      books_[segment.extent].stashed_in[segment.number].load(std::memory_order_relaxed);
  return stashed * 20 > slots;
}

KeyHash Index::hash_of(Slot slot) const {
  const std::byte* record = memory_.record(slot.location());
  const auto lengths = load_le<std::uint64_t>(record + 16);
  const std::size_t at = record_key_offset(lengths);
  return memory_.hash({record + at, record_key_length(lengths)});
}

// Whether the slot's key moves to the new segment.
bool Index::has_left(Slot slot, std::uint32_t depth) const {
  const std::uint32_t prefix = slot.is_on_disk() ? slot.prefix() : hash_of(slot).prefix();
  return (prefix & deciding_bit(depth)) != 0;
}

// Bit i: the key of slot i moves to the new segment. The records are scattered over memory.
// Prefetching them together makes the thread wait about once.
std::uint32_t Index::leaving(GroupPlace place, std::uint32_t depth) const {
  const Group& group = *memory_.group(place);
  for (const std::uint64_t bits : group.slots) {
    const Slot slot{bits};
    if (!slot.empty() && !slot.is_on_disk()) __builtin_prefetch(memory_.record(slot.location()));
  }
  std::uint32_t leaving = 0;
  for (std::uint32_t i = 0; i < kSlotsPerGroup; ++i) {
    const Slot slot{group.slots[i]};
    if (slot.empty()) continue;
    if (has_left(slot, depth)) leaving |= 1U << i;
  }
  return leaving;
}

void Index::split(Segment from, Segment to) {
  const std::uint32_t groups = memory_.groups_per_segment();
  Segments& segments = memory_.segments();
  const std::uint32_t depth = from.depth;
  const std::uint32_t prefix =
      GroupHeader::decode(memory_.group(segments.group(from, 0))->header).prefix;
  const std::uint32_t new_prefix = prefix | deciding_bit(depth);
  from.depth = to.depth = depth + 1;

  // 1. All of the new segment: a client that READs it early finds every key that it will have.
  std::array<std::uint32_t, std::size_t{1} << KeyHash::kGroupBits> gone;
  for (std::uint32_t i = 0; i < groups; i += 2) {
    const GroupPlace old_even = segments.group(from, i);
    gone[i] = leaving(old_even, depth);
    gone[i + 1] = leaving(old_even.neighbour(), depth);
    fill_new_pair(old_even, segments.group(to, i), {gone[i], gone[i + 1]}, depth);
  }
  due_.split(from, to);
  // 2. The directory leads to it before the old segment refuses any reader.
  segments.show(new_prefix, to);
  segments.show(prefix, from);
  // 3. The old segment states its new prefix and drops the other keys.
  for (std::uint32_t i = 0; i < groups; i += 2)
    stamp_and_trim(segments.group(from, i), {gone[i], gone[i + 1]}, depth);
  for (std::uint32_t i = 0; i < groups; i += 2)
    settle(segments.group(from, i));
  // 4. From here on other threads change the new segment: no group of the old one covers its keys.
  segments.set_route(prefix, from);
  segments.set_route(new_prefix, to);
}

// Writes a pair of the new segment with all keys that move to it.
void Index::fill_new_pair(GroupPlace old_even, GroupPlace new_even,
                          const std::array<std::uint32_t, 2>& leaving, std::uint32_t depth) {
  NewPair pair;
  std::array<std::uint64_t, 2 * kSlotsPerGroup> abroad;  // keys of home 1 come last
  std::array<std::uint32_t, 2> abroad_count = {};
  std::uint32_t waiting = 0;
  for (std::uint32_t home = 0; home < 2; ++home) {
    for (std::uint32_t side = 0; side < 2; ++side) {
      const GroupPlace place = on_side(old_even, side);
      const std::uint32_t guests = this->guests(place);
      std::uint32_t mine = leaving[side] & (side == home ? ~guests : guests);
      for (; mine != 0; mine &= mine - 1) {
        const std::uint64_t slot =
            memory_.group(place)->slots[static_cast<std::size_t>(std::countr_zero(mine))];
        if (pair.place_at_home(home, slot)) continue;
        abroad[waiting++] = slot;
        ++abroad_count[home];
      }
    }
  }
  // They came from one pair, so one pair has space for them.
  for (std::uint32_t i = 0; i < waiting; ++i)
    RKV_CHECK(pair.place_as_guest(i < abroad_count[0] ? 0 : 1, abroad[i]), "half of a pair fits");
  Stash::Chain& old_chain = stashed_at(old_even);
  for (std::uint32_t entry = old_chain, next = 0; entry != Stash::kNone; entry = next) {
    next = stash_.next(entry);
    const Slot slot = stash_.slot(entry);
    if (!has_left(slot, depth)) continue;
    const std::uint32_t home = stash_.side(entry);
    if (pair.place_at_home(home, slot.bits) || pair.place_as_guest(home, slot.bits)) {
      unstash(old_even, entry);
      continue;
    }
    pair.spilled[home] = true;
    stash_.move(old_chain, stashed_at(new_even), entry);
    stashed_in(old_even).fetch_sub(1, std::memory_order_relaxed);
    stashed_in(new_even).fetch_add(1, std::memory_order_relaxed);
  }
  for (std::uint32_t side = 0; side < 2; ++side) {
    GroupHeader header = GroupHeader::decode(memory_.group(on_side(old_even, side))->header);
    header.change += 1;
    header.depth = depth + 1;
    header.prefix |= deciding_bit(depth);
    header.overflow = pair.overflow[side];
    header.spilled = pair.spilled[side] || all_spilled();
    pair.groups[side].header = header.encode();
    guests(on_side(new_even, side)) = pair.guests[side];
    uses(on_side(new_even, side)) = kUsedOnce;
    write_new_group(on_side(new_even, side), pair.groups[side]);
  }
}

// No directory entry leads here yet. But a client with an old or a torn directory may READ the
// group. That client gets the whole group, or something that does not verify.
void Index::write_new_group(GroupPlace place, const Group& group) {
  Group* shared = memory_.group(place);
  copy_to_shared(reinterpret_cast<std::byte*>(shared) + 8,
                 std::as_bytes(std::span(&group, 1)).subspan(8));
  publish_word(Step::kNewGroup, &shared->checksum, group_checksum(group, memory_.epoch(), place));
}

// One publication per group: sets depth and prefix, and clears the slots whose keys have moved. A
// key that stays keeps its slot.
void Index::stamp_and_trim(GroupPlace even, const std::array<std::uint32_t, 2>& leaving,
                           std::uint32_t depth) {
  for (std::uint32_t side = 0; side < 2; ++side)
    guests(on_side(even, side)) &= ~leaving[side];
  for (std::uint32_t side = 0; side < 2; ++side) {
    const GroupPlace place = on_side(even, side);
    Group* shared = memory_.group(place);
    Group copy = *shared;  // plain read: the lock is held
    GroupHeader header = GroupHeader::decode(copy.header);
    header.change += 1;
    header.depth = depth + 1;  // the prefix gets a 0 bit
    header.overflow = guests(place.neighbour()) != 0;
    header.spilled = stash_.first_of(stashed_at(place), side) != Stash::kNone || all_spilled();
    copy.header = header.encode();
    for (std::uint32_t left = leaving[side]; left != 0; left &= left - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(left));
      copy.slots[i] = 0;
      publish_word(Step::kSlot, &shared->slots[i], 0);
    }
    publish_word(Step::kGroupHeader, &shared->header, copy.header);
    publish_word(Step::kGroupChecksum, &shared->checksum,
                 group_checksum(copy, memory_.epoch(), place));
  }
}

// Uses the free slots: moves guests home and stashed keys into the groups, one by one (INDEX-4,
// INDEX-5).
void Index::settle(GroupPlace even) {
  for (std::uint32_t side = 0; side < 2; ++side) {
    const GroupPlace place = on_side(even, side);
    if (stashed_at(place) == Stash::kNone && guests(place.neighbour()) == 0) continue;
    for (auto free = free_slot(place); free && fill(place, *free);)
      free = free_slot(place);
  }
}

}  // namespace rkv::server
