#include "server/store/run_maker.h"

#include <algorithm>
#include <new>
#include <span>

namespace rkv::server {

namespace {
constexpr int kStretches = 4;                            // in one make()
constexpr int kPasses = 2;                               // a slot that moves may be missed
constexpr std::size_t kMostGone = std::size_t{1} << 18;  // records of two units in 16 MiB
constexpr Nanos kKeptFor = 1000 * kNanosPerMs;  // longer than a client waits before it asks
constexpr Nanos kUntouched = 20 * kNanosPerMs;  // before another length may take its place
constexpr Nanos kHopelessFor = 1000 * kNanosPerMs;
constexpr std::uint64_t kUseless = std::uint64_t{1} << 40;
}  // namespace

void RunMaker::ask(std::uint64_t units) {
  if (units < kLeastUnits) return;
  std::uint64_t asked = asked_.load(std::memory_order_relaxed);
  while (asked < units && !asked_.compare_exchange_weak(asked, units, std::memory_order_relaxed)) {
  }
}

// Not for a record of less than half the length: the long ones would never get theirs.
std::optional<Location> RunMaker::take(std::uint64_t units) {
  Location block;
  std::uint64_t length = 0;
  {
    const MutexLock lock(kept_mutex_);
    length = kept_.units;
    if (kept_.count == 0 || length < units || length / 2 > units) return std::nullopt;
    block = kept_.blocks[--kept_.count];
  }
  if (length == units) return block;
  table_.blocks().release(block, length);
  return table_.blocks().allocate(units);
}

bool RunMaker::is_hopeless(std::uint64_t units) const {
  return units >= hopeless_units_.load(std::memory_order_relaxed) &&
         clock_.now() < hopeless_until_.load(std::memory_order_relaxed);
}

void RunMaker::give_up() {
  Kept kept;
  {
    const MutexLock lock(kept_mutex_);
    std::swap(kept, kept_);
  }
  for (const Location block : std::span(kept.blocks).first(kept.count))
    table_.blocks().release(block, kept.units);
}

// REQUIRES: nothing is kept.
bool RunMaker::keep(std::uint64_t units, std::size_t most) {
  Kept kept{.units = units, .since = clock_.now()};
  while (kept.count < std::min(most, kMostKept)) {
    const auto block = table_.blocks().allocate(units);
    if (!block) break;
    kept.blocks[kept.count++] = *block;
  }
  if (kept.count == 0) return false;
  const MutexLock lock(kept_mutex_);
  kept_ = kept;
  return true;
}

std::uint64_t RunMaker::capacity_units() const {
  return table_.blocks().usage().capacity_bytes / kUnitBytes;
}

bool RunMaker::make() {
  const std::uint64_t units = asked_.exchange(0, std::memory_order_relaxed);
  {
    const MutexLock lock(kept_mutex_);
    const Nanos age = clock_.now() - kept_.since;
    const bool suits = units <= kept_.units && units >= kept_.units / 2;
    if (kept_.count != 0 && age < (suits || units == 0 ? kKeptFor : kUntouched)) {
      if (!suits) ask(units);  // next time
      return true;
    }
  }
  give_up();
  if (units == 0) return false;
  if (keep(units, 1)) return true;
  if (gone_ == nullptr) gone_.reset(new (std::nothrow) Slot[kMostGone]);
  if (gone_ == nullptr) return false;
  // Not for each record: the walks over the index take long.
  const std::uint64_t count =
      std::clamp<std::uint64_t>(capacity_units() / 512 / units, 1, kMostKept);
  std::size_t dropped = 0;
  for (int i = 0; i < kStretches; ++i) {
    const auto stretch = least_used_stretch(count * units);
    // All eight may be in use. These were counted down, so there is an end to it.
    const bool is_hot = stretch && stretch->uses >= 2 * count * units;
    if (is_hot && i + 1 < kStretches) continue;
    for (int pass = 0; stretch && pass < kPasses; ++pass) {
      dropped += clear(*stretch);
      if (keep(units, count)) return true;
    }
  }
  return dropped != 0;
}

std::optional<RunMaker::Stretch> RunMaker::next_stretch(std::uint64_t units) {
  const StoreMemory& memory = table_.memory();
  const std::uint32_t count = memory.extent_count();
  for (std::uint32_t tried = 0; tried <= count; ++tried) {
    if (extent_ >= count) extent_ = 0;
    const StoreMemory::Extent extent = memory.extent(extent_);
    const std::uint64_t end = extent.units() / kPageUnits * kPageUnits;
    if (extent.kind == ExtentEntry::kData && unit_ < end && units <= end) {
      // The last stretch of an extent may overlap the one before.
      const std::uint64_t begin = std::min(unit_, end - units);
      unit_ = begin + units;
      return Stretch{.extent = extent_, .begin = begin, .end = begin + units};
    }
    ++extent_;
    unit_ = 0;
  }
  return std::nullopt;
}

// Looks at the next few, and takes a use from the records there, as the clock's hand does. A record
// that may not go makes a stretch useless. So does none at all: what lies there is on its way in.
std::optional<RunMaker::Stretch> RunMaker::least_used_stretch(std::uint64_t units) {
  constexpr std::size_t kFew = 8;
  std::array<Stretch, kFew> few;
  for (Stretch& one : few) {
    const auto stretch = next_stretch(units);
    if (!stretch) return std::nullopt;
    one = *stretch;
  }
  std::array<std::uint64_t, kFew> weights{};
  std::array<std::uint64_t, kFew> records{};
  table_.for_each_pair([&](const RecordTable::Pair& pair) {
    table_.index().each_resident(pair.even, [&](const Index::Resident& resident) {
      const Slot slot = resident.position.slot;
      const std::uint32_t extent = slot.location().extent();
      std::uint64_t length = 0;
      for (std::size_t i = 0; i < kFew; ++i) {
        if (few[i].extent != extent) continue;
        if (length == 0) length = table_.units_of(slot);
        if (!is_in(slot, length, few[i])) continue;
        const bool stays = table_.record_at(slot.location()).in_cell;
        weights[i] += stays ? kUseless : resident.uses * length;
        records[i] += 1;
      }
      if (length != 0) table_.index().take_use(resident.home, resident.position);
    });
  });
  bool may_change = false;
  for (std::size_t i = 0; i < kFew; ++i) {
    if (records[i] != 0) continue;
    may_change = true;
    weights[i] += kUseless;
  }
  const auto least = static_cast<std::size_t>(std::ranges::min_element(weights) - weights.begin());
  const bool useless = weights[least] >= kUseless;
  useless_units_ = useless && !may_change ? useless_units_ + kFew * units : 0;
  if (!useless) {
    few[least].uses = weights[least];
    return few[least];
  }
  if (useless_units_ >= capacity_units()) {
    useless_units_ = 0;
    hopeless_units_.store(units, std::memory_order_relaxed);
    hopeless_until_.store(clock_.now() + kHopelessFor, std::memory_order_relaxed);
  }
  return std::nullopt;
}

bool RunMaker::is_in(Slot slot, std::uint64_t units, const Stretch& stretch) const {
  const Location at = slot.location();
  return at.extent() == stretch.extent && at.unit() < stretch.end &&
         at.unit() + units > stretch.begin;
}

// Returns how many records it dropped: as a DELETE does, but their blocks are released at the end.
std::size_t RunMaker::clear(const Stretch& stretch) {
  std::size_t count = 0;
  table_.for_each_pair([&](const RecordTable::Pair& pair) {
    table_.index().each_resident(pair.even, [&](const Index::Resident& resident) {
      const Slot slot = resident.position.slot;
      if (count == kMostGone || slot.location().extent() != stretch.extent) return;
      if (!is_in(slot, table_.units_of(slot), stretch)) return;
      if (table_.record_at(slot.location()).in_cell) return;
      table_.erase({.hash = KeyHash(0),  // erase() does not look at it
                    .home = resident.home,
                    .found = resident.position,
                    .counters = &pair.counters});
      pair.counters.evicted += 1;
      gone_[count++] = slot;
    });
  });
  for (const Slot slot : std::span(gone_.get(), count))
    table_.release(slot);
  return count;
}

}  // namespace rkv::server
