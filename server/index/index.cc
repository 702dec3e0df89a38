#include "server/index/index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/check.h"
#include "server/memory/publish_hooks.h"

namespace rkv::server {

namespace {

// A minimum, so that small indexes (tests) get a useful stash.
constexpr std::uint64_t kMinStashEntries = 1024;
constexpr std::uint32_t kLooksOfTouch = 16;

}  // namespace

std::uint32_t Index::stash_capacity(std::uint64_t slot_count) {
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(slot_count / 8, kMinStashEntries, 0xFFFF'FFF0U));
}

Index::Index(StoreMemory& memory)
    : memory_(memory),
      stash_(stash_capacity(memory.max_slot_count())),
      due_(memory.groups_per_segment()),
      books_(std::make_unique<Books[]>(kMaxExtents)) {
  for (std::uint32_t id = 0; id < memory.extent_count(); ++id) {
    if (memory.extent(id).kind == ExtentEntry::kIndex) add_extent(memory.extent(id));
  }
}

void Index::add_extent(const StoreMemory::Extent& extent) {
  const std::uint32_t segments = memory_.segments_in(extent);
  const std::size_t groups = std::size_t{segments} * memory_.groups_per_segment();
  Books& books = books_[extent.id];
  books.guests = std::make_unique<std::uint32_t[]>(groups);
  books.uses = std::make_unique<std::uint64_t[]>(groups);
  books.stashed = std::make_unique<Stash::Chain[]>(groups / 2);
  books.stashed_in = std::make_unique<std::atomic<std::uint32_t>[]>(segments);
  due_.add_extent(extent.id, segments);
}

// -------------------------------------------------------------------------------------- lookup

// Plain reads: records and groups of the pair change only under the lock that the caller holds.
bool Index::key_at(Slot slot, Bytes key) const {
  const std::byte* record = memory_.record(slot.location());
  const auto lengths = load_le<std::uint64_t>(record + 16);
  if (record_key_length(lengths) != key.size()) return false;
  const std::size_t at = record_key_offset(lengths);
  return std::memcmp(record + at, key.data(), key.size()) == 0;
}

template <class Matches>
std::optional<std::uint32_t> Index::find_in(GroupPlace place, KeyHash hash, Matches matches) const {
  const Group& group = *memory_.group(place);
  for (std::uint32_t i = 0; i < kSlotsPerGroup; ++i) {
    const Slot slot{group.slots[i]};
    if (slot.fingerprint() == hash.fingerprint() && !slot.empty() && !slot.is_on_disk() &&
        matches(slot)) {
      return i;
    }
  }
  return std::nullopt;
}

std::optional<std::uint32_t> Index::free_slot(GroupPlace place) const {
  const Group& group = *memory_.group(place);
  for (std::uint32_t i = 0; i < kSlotsPerGroup; ++i) {
    if (group.slots[i] == 0) return i;
  }
  return std::nullopt;
}

template <class Matches>
std::optional<Index::Position> Index::find_if(GroupPlace home, KeyHash hash,
                                              Matches matches) const {
  const Group& group = *memory_.group(home);
  if (const auto i = find_in(home, hash, matches)) {
    return Position{.where = Where::kHome, .number = *i, .slot = {group.slots[*i]}};
  }
  const GroupHeader header = GroupHeader::decode(group.header);
  if (header.overflow) {
    if (const auto i = find_in(home.neighbour(), hash, matches)) {
      const Slot slot{memory_.group(home.neighbour())->slots[*i]};
      return Position{.where = Where::kNeighbour, .number = *i, .slot = slot};
    }
  }
  if (header.spilled) {
    for (auto e = stashed_at(home); e != Stash::kNone; e = stash_.next(e)) {
      const Slot slot = stash_.slot(e);
      if (slot.fingerprint() == hash.fingerprint() && !slot.is_on_disk() && matches(slot)) {
        return Position{.where = Where::kStash, .number = e, .slot = slot};
      }
    }
  }
  return std::nullopt;
}

void Index::prefetch(GroupPlace home) const {
  for (const GroupPlace place : {home, home.neighbour()}) {
    const auto* group = reinterpret_cast<const std::byte*>(memory_.group(place));
    for (std::size_t at = 0; at < sizeof(Group); at += 64)
      __builtin_prefetch(group + at, 1);
  }
  const Books& books = books_[home.extent];
  __builtin_prefetch(&books.uses[home.number], 1);
  __builtin_prefetch(&books.stashed[home.number / 2]);
}

// The records are scattered over memory. Prefetching them together makes the thread wait about
// once.
void Index::prefetch_residents(GroupPlace even) const {
  const auto prefetch = [this](Slot slot) {
    if (!slot.empty() && !slot.is_on_disk()) __builtin_prefetch(memory_.record(slot.location()));
  };
  for (const GroupPlace place : {even, even.neighbour()}) {
    for (const std::uint64_t bits : memory_.group(place)->slots)
      prefetch(Slot{bits});
  }
  for (auto e = stashed_at(even); e != Stash::kNone; e = stash_.next(e))
    prefetch(stash_.slot(e));
}

std::optional<Index::Position> Index::find(GroupPlace home, KeyHash hash, Bytes key) const {
  return find_if(home, hash, [&](Slot slot) { return key_at(slot, key); });
}

std::optional<Index::Position> Index::find_version(GroupPlace home, KeyHash hash,
                                                   Version version) const {
  return find_if(home, hash, [&](Slot slot) {
    return load_le<std::uint64_t>(memory_.record(slot.location()) + 8) == version.bits;
  });
}

// A slot of another home in the same group may have the same bits. The guest bit tells them apart.
std::optional<Index::Position> Index::find_on_disk(GroupPlace home, KeyHash hash) const {
  const Slot wanted = Slot::on_disk(hash);
  const auto in = [&](GroupPlace place, bool as_guest) -> std::optional<std::uint32_t> {
    const std::uint32_t abroad = books_[place.extent].guests[place.number];
    for (std::uint32_t i = 0; i < kSlotsPerGroup; ++i) {
      if (memory_.group(place)->slots[i] == wanted.bits &&
          (abroad >> i & 1U) == (as_guest ? 1U : 0U))
        return i;
    }
    return std::nullopt;
  };
  if (const auto i = in(home, false)) {
    return Position{.where = Where::kHome, .number = *i, .slot = wanted};
  }
  if (const auto i = in(home.neighbour(), true)) {
    return Position{.where = Where::kNeighbour, .number = *i, .slot = wanted};
  }
  for (auto e = stashed_at(home); e != Stash::kNone; e = stash_.next(e)) {
    if (stash_.side(e) == side(home) && stash_.slot(e) == wanted) {
      return Position{.where = Where::kStash, .number = e, .slot = wanted};
    }
  }
  return std::nullopt;
}

std::optional<Index::Position> Index::vacancy(GroupPlace home) {
  if (const auto i = free_slot(home)) {
    return Position{.where = Where::kHome, .number = *i};
  }
  if (const auto i = free_slot(home.neighbour())) {
    return Position{.where = Where::kNeighbour, .number = *i};
  }
  if (is_crowded(home)) return std::nullopt;
  if (const auto entry = stash_.take()) {
    return Position{.where = Where::kStash, .number = *entry};
  }
  return std::nullopt;
}

void Index::release(const Position& vacancy) {
  if (vacancy.where == Where::kStash) stash_.give_back(vacancy.number);
}

// ---------------------------------------------------------------------------------- publishing

// Slot, then header with the change counter, then checksum, each by a release store. Between the
// first and the last store the group does not verify, so readers cannot depend on the order. It is
// fixed because readers may try the slots of a group that does not verify: the earlier they see the
// slot, the better.
void Index::publish(GroupPlace place, const Edit& edit) {
  Group* shared = memory_.group(place);
  Group copy = *shared;  // plain read: the lock is held
  GroupHeader header = GroupHeader::decode(copy.header);
  header.change += 1;  // wraps at 28 bits in encode()
  header.overflow = edit.overflow.value_or(header.overflow);
  header.spilled = edit.spilled.value_or(header.spilled);
  copy.header = header.encode();
  if (edit.slot_number < kSlotsPerGroup) {
    std::uint64_t& uses = this->uses(place);
    // A record that moved keeps its uses; this publication counts as one more.
    const Slot before{copy.slots[edit.slot_number]};
    if (before.empty() || before.is_on_disk())
      uses &= ~(std::uint64_t{3} << (2 * edit.slot_number));
    add_use(uses, edit.slot_number);
    copy.slots[edit.slot_number] = edit.slot.bits;
    publish_word(Step::kSlot, &shared->slots[edit.slot_number], edit.slot.bits);
  }
  publish_word(Step::kGroupHeader, &shared->header, copy.header);
  publish_word(Step::kGroupChecksum, &shared->checksum,
               group_checksum(copy, memory_.epoch(), place));
}

void Index::insert(GroupPlace home, const Position& vacancy, Slot slot) {
  switch (vacancy.where) {
    case Where::kHome:
      publish(home, {.slot_number = vacancy.number, .slot = slot});
      return;
    case Where::kNeighbour:
      insert_guest(home, vacancy.number, slot);
      return;
    case Where::kStash:
      stash(home, vacancy.number, slot);
      if (!GroupHeader::decode(memory_.group(home)->header).spilled) {
        publish(home, {.spilled = true});
      }
      return;
  }
}

void Index::replace(GroupPlace home, const Position& position, Slot slot) {
  if (position.where == Where::kStash) {
    stash_.set_slot(position.number, slot);
    stash_.add_use(position.number);
    return;
  }
  publish(position.where == Where::kHome ? home : home.neighbour(),
          {.slot_number = position.number, .slot = slot});
}

void Index::erase(GroupPlace home, const Position& position) {
  switch (position.where) {
    case Where::kHome:
      publish(home, {.slot_number = position.number});
      fill(home, position.number);
      return;
    case Where::kNeighbour:
      erase_guest(home, position.number);
      fill(home.neighbour(), position.number);
      return;
    case Where::kStash:
      unstash(home, position.number);
      clear_spilled_if_none_left(home);
      return;
  }
}

// The flag comes first: a reader that sees it reads the neighbour, whether or not the guest is
// there yet. The home group is published even if the flag is set already. The guest may come from
// the stash, and a change of whereabouts raises the home's counter before the key leaves its old
// place.
void Index::insert_guest(GroupPlace home, std::uint32_t slot_number, Slot slot) {
  publish(home, {.overflow = true});
  guests(home.neighbour()) |= 1U << slot_number;
  publish(home.neighbour(), {.slot_number = slot_number, .slot = slot});
}

// The flag is cleared last, when this home has no other guest. As long as a reader can find a
// guest, the flag tells the reader to look for it.
void Index::erase_guest(GroupPlace home, std::uint32_t slot_number) {
  std::uint32_t& mask = guests(home.neighbour());
  RKV_CHECK((mask >> slot_number & 1U) != 0, "not a guest");
  publish(home.neighbour(), {.slot_number = slot_number});
  mask &= ~(1U << slot_number);
  if (mask == 0) publish(home, {.overflow = false});
}

void Index::stash(GroupPlace home, std::uint32_t entry, Slot slot) {
  stash_.add(stashed_at(home), entry, side(home), slot);
  stashed_in(home).fetch_add(1, std::memory_order_relaxed);
}

void Index::unstash(GroupPlace home, std::uint32_t entry) {
  stash_.remove(stashed_at(home), entry);
  stashed_in(home).fetch_sub(1, std::memory_order_relaxed);
}

void Index::clear_spilled_if_none_left(GroupPlace home) {
  if (stash_.first_of(stashed_at(home), side(home)) == Stash::kNone && !all_spilled()) {
    publish(home, {.spilled = false});
  }
}

void Index::refresh_spilled(GroupPlace even) {
  for (const GroupPlace home : {even, even.neighbour()}) {
    const bool stashed = stash_.first_of(stashed_at(home), side(home)) != Stash::kNone;
    const bool spilled = stashed || all_spilled();
    if (GroupHeader::decode(memory_.group(home)->header).spilled != spilled) {
      publish(home, {.spilled = spilled});
    }
  }
}

// Matches by fingerprint only: counting a use for another key with the same fingerprint does no
// harm. Of a long chain only the beginning is scanned, because a client reports 64 keys at a time.
void Index::touch(GroupPlace home, KeyHash hash) const {
  for (const GroupPlace place : {home, home.neighbour()}) {
    std::uint64_t& uses = this->uses(place);
    for (std::uint32_t i = 0; i < kSlotsPerGroup; ++i) {
      const Slot slot{memory_.group(place)->slots[i]};
      if (slot.fingerprint() != hash.fingerprint() || slot.empty() || slot.is_on_disk()) continue;
      add_use(uses, i);
    }
  }
  std::uint32_t looks = kLooksOfTouch;
  for (auto e = stashed_at(home); e != Stash::kNone && looks != 0; e = stash_.next(e), --looks) {
    if (stash_.slot(e).fingerprint() == hash.fingerprint()) stash_.add_use(e);
  }
}

std::uint32_t Index::uses_of(GroupPlace home, const Position& position) const {
  if (position.where == Where::kStash) return stash_.uses(position.number);
  const std::uint64_t uses = this->uses(position.where == Where::kHome ? home : home.neighbour());
  return static_cast<std::uint32_t>(uses >> (2 * position.number) & 3U);
}

void Index::touch(GroupPlace home, const Position& position) const {
  if (position.where == Where::kStash) return stash_.add_use(position.number);
  add_use(uses(position.where == Where::kHome ? home : home.neighbour()), position.number);
}

// Fills the freed slot of `place` with at most three moves, each of one key. The slot goes to a
// stashed key of this home. Otherwise it goes to a guest of this home in the neighbour, whose slot
// then goes to a stashed key of that group. Otherwise it goes to a stashed key of the other home,
// as a guest. The oldest stashed key comes first: the eviction begins with the groups, and must
// reach every key in the end.
bool Index::fill(GroupPlace place, std::uint32_t slot_number) {
  if (const auto entry = stash_.last_of(stashed_at(place), side(place)); entry != Stash::kNone) {
    take_from_stash(place, entry, {.where = Where::kHome, .number = slot_number});
    return true;
  }
  const GroupPlace other = place.neighbour();
  const auto stashed = stash_.last_of(stashed_at(place), side(other));
  if (const std::uint32_t abroad = guests(other); abroad != 0) {
    const auto from = static_cast<std::uint32_t>(std::countr_zero(abroad));
    const Slot guest{memory_.group(other)->slots[from]};
    // Inserted at home before it is removed from the neighbour. A reader that misses it here has
    // read an older home group, and finds the counter raised when it reads home again.
    const auto uses = static_cast<std::uint32_t>(this->uses(other) >> (2 * from) & 3U);
    publish(place, {.slot_number = slot_number, .slot = guest});
    set_uses(this->uses(place), slot_number, uses);
    erase_guest(place, from);
    if (stashed != Stash::kNone) {
      take_from_stash(other, stashed, {.where = Where::kHome, .number = from});
    }
    return true;
  }
  if (stashed == Stash::kNone) return false;
  take_from_stash(other, stashed, {.where = Where::kNeighbour, .number = slot_number});
  return true;
}

// Inserts into the group first. Until then `spilled` sends readers to the server.
void Index::take_from_stash(GroupPlace home, std::uint32_t entry, Position to) {
  insert(home, to, stash_.slot(entry));
  set_uses(uses(to.where == Where::kHome ? home : home.neighbour()), to.number, stash_.uses(entry));
  unstash(home, entry);
  clear_spilled_if_none_left(home);
}

}  // namespace rkv::server
