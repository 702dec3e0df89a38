#include "server/store/evictor.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "common/check.h"

namespace rkv::server {

namespace {

constexpr int kMostUses = 3;  // that an index counts of a slot
constexpr std::size_t kAnyBytes = std::numeric_limits<std::size_t>::max();

}  // namespace

void Evictor::drop_when_full() {
  RKV_CHECK(log_.is_volatile() && !disk_.in_use(), "a cache has no disk");
  runs_ = std::make_unique<RunMaker>(table_, clock_);
}

void Evictor::move_for_runs(StretchClearer::Move move) {
  RKV_CHECK(runs_ == nullptr && !disk_.in_use(), "a store that drops or evicts moves nothing");
  runs_ = std::make_unique<RunMaker>(table_, clock_, std::move(move));
}

// A store that keeps all its records, and is full, moves nothing for the last bytes of it.
bool Evictor::may_free(std::uint64_t units) const {
  if (!is_needed() || is_hopeless(units)) return false;
  if (!moves()) return drops() || !has_nothing_to_evict();
  const RecordAllocator::Usage usage = table_.blocks().usage();
  const std::uint64_t free = usage.capacity_bytes - usage.used_bytes;
  return units >= RunMaker::kLeastUnits && free >= units * kUnitBytes + usage.capacity_bytes / 64;
}

bool Evictor::has_spare_room() const {
  const RecordAllocator::Usage usage = table_.blocks().usage();
  return usage.capacity_bytes - usage.used_bytes > usage.capacity_bytes / 16;
}

bool Evictor::has_room_in_pieces(std::uint64_t units) const {
  constexpr std::uint64_t kSeveral = 4;
  const RecordAllocator::Usage usage = table_.blocks().usage();
  return has_spare_room() &&
         usage.capacity_bytes - usage.used_bytes >= kSeveral * units * kUnitBytes;
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

// Returns the trace that the record would leave in the index if it left memory now. Counters in
// cells may not leave, because clients change them. Records that expire may not leave for the disk,
// because expiry finds records through memory. A dropped record leaves its pair's due time behind,
// a lower bound (DUE-1).
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
void Evictor::evict_from(GroupPlace even, StripeCounters& counters, std::size_t wanted_bytes,
                         std::size_t most, Gone& gone) {
  std::size_t left_slots = 0;
  // This server's own mark: the record is loaded again from its own disk.
  const std::uint64_t durable = log_.sync_mark();
  Index& index = table_.index();
  index.pass(even, [&](const Index::Resident& resident) {
    const Slot slot = resident.position.slot;
    if (gone.count == most || gone.bytes >= wanted_bytes) return;
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
    gone.slots[gone.count++] = slot;
    // A slot does not have the length of a long record.
    gone.bytes += table_.units_of(slot) * kUnitBytes;
  });
  counters.records -= gone.count;
  counters.on_disk += left_slots;
  counters.evicted += gone.count;
}

std::size_t Evictor::release(const Gone& gone) {
  for (const Slot slot : std::span(gone.slots).first(gone.count))
    table_.release(slot);
  return gone.bytes;
}

// A clock's hand over all pairs: each use of a record saves it for one round, three at most.
std::size_t Evictor::evict(std::size_t bytes) {
  const StoreMemory& memory = table_.memory();
  const std::uint32_t pairs = memory.groups_per_segment() / 2;
  std::uint64_t left = std::uint64_t{memory.segments().in_use()} * pairs * 4 + 1;
  std::size_t freed = 0;
  while (freed < bytes && left != 0) {
    std::uint32_t depth = 0;
    Gone gone;
    const auto visit = [&](const RecordTable::Pair& pair) {
      evict_from(pair.even, pair.counters, bytes - freed, kMostAtOnce, gone);
    };
    if (!table_.visit_pair(RecordTable::hash_of_prefix(hand_prefix_), hand_pair_, &depth, visit))
      continue;
    freed += release(gone);  // without the lock: scrubbing long records takes milliseconds
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
    Gone gone;
    evict_from(even, *target.counters, kAnyBytes, kSlotsPerGroup, gone);
    if (release(gone) != 0) return true;
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

// Whether operations asked only for blocks that are much longer than those of most records, or
// found none among much that is free, as when each is a unit longer than those before. However many
// records go, they leave few holes for them. Records of mixed lengths find theirs among some dozens
// of holes, and a run would cost some that are in use.
bool Evictor::needs_a_run() const {
  if (!drops() || runs_->shortest_asked() == 0) return false;
  constexpr std::size_t kHoles = 128;
  const std::size_t asked = runs_->shortest_asked() * kUnitBytes;
  const RecordAllocator::Usage usage = table_.blocks().usage();
  const std::size_t much =
      std::min(usage.capacity_bytes / 8, usage.capacity_bytes / 32 + kHoles * asked);
  if (usage.capacity_bytes - usage.used_bytes > much) return true;
  const std::uint64_t records = std::max<std::uint64_t>(1, table_.locks().total().records);
  return asked > 4 * (usage.used_bytes / records);
}

bool Evictor::evict_for_space() {
  const bool called = called_.exchange(false, std::memory_order_relaxed);
  if (!is_needed()) {
    give_up_runs();
    return true;
  }
  if (moves()) return runs_->make([] {});
  const std::size_t wanted = wanted_bytes(called && !needs_a_run());
  some_wait_ = some_unsynced_ = false;
  bool freed = wanted != 0 && evict(wanted) != 0;
  if (drops()) {
    // Making a run takes some milliseconds. Short records find their room meanwhile.
    const auto evict_for_others = [this] {
      if (const std::size_t more = wanted_bytes(false); more != 0) (void)evict(more);
    };
    freed = runs_->make(evict_for_others) || freed;
  }
  nothing_to_evict_.store(wanted != 0 && !freed && !some_unsynced_ && !some_wait_,
                          std::memory_order_relaxed);
  return wanted == 0 || freed;
}

}  // namespace rkv::server
