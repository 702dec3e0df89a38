#include "server/store/evictor.h"

#include <algorithm>
#include <array>

namespace rkv::server {

namespace {

// Whether the record may ever be evicted. Counters in cells may not, because clients change them.
// Records that expire may not, because expiry finds records through memory.
bool may_ever_go(const RecordFields& record) {
  return !record.in_cell && record.expiry_ms == 0;
}

}  // namespace

bool Evictor::has_spare_room() const {
  const RecordAllocator::Usage usage = table_.blocks().usage();
  return usage.capacity_bytes - usage.used_bytes > usage.capacity_bytes / 16;
}

void Evictor::touch(std::span<const std::uint64_t> hashes) const {
  if (!is_needed()) return;  // nothing will be evicted
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

// In the order of a DELETE: supersede the record, then replace or clear the slot, then free the
// block.
std::size_t Evictor::evict_from(const RecordTable::Pair& pair) {
  std::array<Slot, std::size_t{4} * kSlotsPerGroup> gone;  // more records wait for the next pass
  std::size_t count = 0;
  std::size_t left_slots = 0;
  // This server's own mark: the record is loaded again from its own disk.
  const std::uint64_t durable = log_.sync_mark();
  Index& index = table_.index();
  index.pass(pair.even, [&](const Index::Resident& resident) {
    const Slot slot = resident.position.slot;
    const RecordFields record = table_.record_at(slot.location());
    if (count == gone.size() || !may_ever_go(record)) return;
    if (!is_durable(record, durable)) {
      some_unsynced_ = true;
      return;
    }
    const DiskTier::Leaves leaves = disk_.leaves(record);
    if (leaves == DiskTier::Leaves::kCannotGo) {
      some_wait_ = true;
      return;
    }
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
  pair.counters.records -= count;
  pair.counters.on_disk += left_slots;
  pair.counters.evicted += count;
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
    const auto visit = [&](const RecordTable::Pair& pair) { freed += evict_from(pair); };
    if (!table_.visit_pair(RecordTable::hash_of_prefix(hand_prefix_), hand_pair_, &depth, visit))
      continue;
    --left;
    if (++hand_pair_ < pairs) continue;
    hand_pair_ = 0;
    hand_prefix_ = RecordTable::next_prefix(hand_prefix_, depth);
  }
  return freed;
}

bool Evictor::evict_for_space() {
  const bool called = called_.exchange(false, std::memory_order_relaxed);
  if (!is_needed()) return true;
  const RecordAllocator::Usage usage = table_.blocks().usage();
  const std::size_t room = usage.capacity_bytes - usage.used_bytes;
  const std::size_t low = usage.capacity_bytes / 64;
  std::size_t wanted = room < low ? 2 * low - room : 0;
  // Free memory exists, but in pieces that are too small.
  if (called) wanted = std::max(wanted, low);
  if (wanted == 0) {
    nothing_to_evict_.store(false, std::memory_order_relaxed);
    return true;
  }
  some_wait_ = some_unsynced_ = false;
  const bool freed = evict(wanted) != 0;
  nothing_to_evict_.store(!freed && !some_unsynced_ && !some_wait_, std::memory_order_relaxed);
  return freed;
}

}  // namespace rkv::server
