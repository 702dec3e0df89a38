#include "server/store/evictor.h"

#include <algorithm>
#include <array>

#include "common/check.h"

namespace rkv::server {

namespace {

constexpr int kMostUses = 3;  // that an index counts of a slot

}  // namespace

void Evictor::drop_when_full() {
  RKV_CHECK(log_.is_volatile() && !disk_.in_use(), "a cache has no disk");
  runs_ = std::make_unique<RunMaker>(table_, clock_);
}

bool Evictor::has_spare_room() const {
  const RecordAllocator::Usage usage = table_.blocks().usage();
  return usage.capacity_bytes - usage.used_bytes > usage.capacity_bytes / 16;
}

void Evictor::touch(std::span<const std::uint64_t> hashes) const {
  if (!counts_uses()) return;
  for (const std::uint64_t bits : hashes) {
    const KeyHash hash(bits);
    const RecordTable::Locked locked(table_, hash);
    table_.index().touch(locked.home, hash);
  }
}

// Whether the record is synced, so that a failing disk cannot lose it.
bool Evictor::is_durable(const RecordFields& record, std::uint64_t durable) const {
  return !record.version.is_since(boot_) || record.version.sequence_since(boot_) <= durable;
}

// What the record leaves in the index if it goes now. Counters in cells may not go, because clients
// change them. Records that expire may not go to the disk, because expiry finds records through
// memory; the note of a record that was dropped finds nothing (EXPIRY-2).
DiskTier::Leaves Evictor::leaves(const RecordFields& record, std::uint64_t durable) {
  using Leaves = DiskTier::Leaves;
  if (record.in_cell) return Leaves::kCannotGo;
  if (drops()) return Leaves::kNothing;
  if (record.expiry_ms != 0) return Leaves::kCannotGo;
  if (!is_durable(record, durable)) {
    some_unsynced_ = true;
    return Leaves::kCannotGo;
  }
  const Leaves left = disk_.leaves(record);
  some_wait_ = some_wait_ || left == Leaves::kCannotGo;
  return left;
}

// In the order of a DELETE: supersede the record, then replace or clear the slot, then free the
// block.
std::size_t Evictor::evict_from(GroupPlace even, StripeCounters& counters, std::size_t most) {
  std::array<Slot, kMostAtOnce> gone;  // more records wait for the next pass
  std::size_t count = 0;
  std::size_t left_slots = 0;
  // This server's own mark: the record is loaded again from its own disk.
  const std::uint64_t durable = log_.sync_mark();
  Index& index = table_.index();
  index.pass(even, [&](const Index::Resident& resident) {
    const Slot slot = resident.position.slot;
    if (count == most) return;
    const RecordFields record = table_.record_at(slot.location());
    const DiskTier::Leaves leaves = this->leaves(record, durable);
    if (leaves == DiskTier::Leaves::kCannotGo) return;
    counters.expiring -= record.expiry_ms != 0 ? 1 : 0;
    const KeyHash hash = table_.memory().hash(record.key);
    if (record.version.is_since(boot_)) disk_.raise(hash, record.version.sequence_since(boot_));
    table_.supersede(slot.location());
    if (leaves == DiskTier::Leaves::kSlot) {
      index.replace(resident.home, resident.position, Slot::on_disk(hash));
      ++left_slots;
    } else {
      index.erase(resident.home, resident.position);
    }
    gone[count++] = slot;
  });
  counters.records -= count;
  counters.on_disk += left_slots;
  counters.evicted += count;
  std::size_t bytes = 0;
  for (const Slot slot : std::span(gone).first(count)) {
    // For a long record this is a lower bound.
    bytes += std::size_t{slot.units()} * kUnitBytes;
    table_.release(slot);
  }
  return bytes;
}

// A clock's hand over all pairs: each use of a record saves it for one round, three at most.
std::size_t Evictor::evict(std::size_t bytes) {
  const StoreMemory& memory = table_.memory();
  const std::uint32_t pairs = memory.groups_per_segment() / 2;
  std::uint64_t left = std::uint64_t{memory.segments().in_use()} * pairs * 4 + 1;
  std::size_t freed = 0;
  while (freed < bytes && left != 0) {
    std::uint32_t depth = 0;
    const auto visit = [&](const RecordTable::Pair& pair) {
      freed += evict_from(pair.even, pair.counters);
    };
    if (!table_.visit_pair(RecordTable::hash_of_prefix(hand_prefix_), hand_pair_, &depth, visit))
      continue;
    --left;
    if (++hand_pair_ < pairs) continue;
    hand_pair_ = 0;
    hand_prefix_ = RecordTable::next_prefix(hand_prefix_, depth);
  }
  return freed;
}

bool Evictor::make_vacancy(const Target& target) {
  if (!drops()) return false;
  const GroupPlace even{target.home.extent, target.home.number & ~1U};
  // Each pass takes a use from every record of the pair. So one that drops a single record for each
  // new key would soon find none but the newest without uses.
  for (int pass = 0; pass <= kMostUses; ++pass) {
    if (evict_from(even, *target.counters, kSlotsPerGroup) != 0) return true;
  }
  return false;
}

// Keeps 1/64 to 1/32 of the data extents free.
std::size_t Evictor::wanted_bytes(bool called) const {
  const RecordAllocator::Usage usage = table_.blocks().usage();
  const std::size_t room = usage.capacity_bytes - usage.used_bytes;
  const std::size_t low = usage.capacity_bytes / 64;
  const std::size_t wanted = room < low ? 2 * low - room : 0;
  if (!called) return wanted;
  return std::max(wanted, low);  // free memory exists, but in pieces that are too small
}

// Whether an operation asked for a block that is much longer than those of most records. However
// many of these go, they leave no hole for it.
bool Evictor::needs_a_run() const {
  if (!drops() || runs_->asked() == 0) return false;
  const std::uint64_t records = std::max<std::uint64_t>(1, table_.locks().total().records);
  return runs_->asked() * kUnitBytes > 4 * (table_.blocks().usage().used_bytes / records);
}

bool Evictor::evict_for_space() {
  const bool called = called_.exchange(false, std::memory_order_relaxed);
  if (!is_needed()) {
    give_up_runs();
    return true;
  }
  const std::size_t wanted = wanted_bytes(called && !needs_a_run());
  some_wait_ = some_unsynced_ = false;
  bool freed = wanted != 0 && evict(wanted) != 0;
  if (drops()) freed = runs_->make() || freed;
  nothing_to_evict_.store(wanted != 0 && !freed && !some_unsynced_ && !some_wait_,
                          std::memory_order_relaxed);
  return wanted == 0 || freed;
}

}  // namespace rkv::server
