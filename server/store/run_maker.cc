#include "server/store/run_maker.h"

#include <algorithm>
#include <array>
#include <span>

namespace rkv::server {

namespace {
constexpr int kStretches = 4;                   // in one make()
constexpr int kPasses = 2;                      // over a stretch: a slot that moves may be missed
constexpr Nanos kKeptFor = 1000 * kNanosPerMs;  // longer than a client waits before it asks again
}  // namespace

RunMaker::RunMaker(RecordTable& table, const Clock& clock)
    : table_(table), clock_(clock), gone_(new Slot[kMostGone]) {}

void RunMaker::ask(std::uint64_t units) {
  if (units < kLeastUnits) return;
  std::uint64_t asked = asked_.load(std::memory_order_relaxed);
  while (asked < units && !asked_.compare_exchange_weak(asked, units, std::memory_order_relaxed)) {
  }
}

std::optional<Location> RunMaker::take(std::uint64_t units) {
  std::optional<Run> run;
  {
    const MutexLock lock(run_mutex_);
    if (!run_ || run_->units < units) return std::nullopt;
    run.swap(run_);
  }
  if (run->units == units) return run->at;
  free(run);
  return table_.blocks().allocate(units);
}

void RunMaker::free(const std::optional<Run>& run) {
  if (run) table_.blocks().release(run->at, run->units);
}

void RunMaker::give_up() {
  std::optional<Run> run;
  {
    const MutexLock lock(run_mutex_);
    run.swap(run_);
  }
  free(run);
}

bool RunMaker::keep(std::uint64_t units) {
  const auto block = table_.blocks().allocate(units);
  if (!block) return false;
  const MutexLock lock(run_mutex_);
  run_ = Run{.at = *block, .units = units, .since = clock_.now()};
  return true;
}

bool RunMaker::make() {
  const std::uint64_t units = asked_.exchange(0, std::memory_order_relaxed);
  {
    const MutexLock lock(run_mutex_);
    const bool fresh = run_ && clock_.now() - run_->since < kKeptFor;
    if (fresh && units <= run_->units) return true;
  }
  give_up();
  if (units == 0) return false;
  std::size_t dropped = 0;
  for (int i = 0; i < kStretches; ++i) {
    if (keep(units)) return true;
    const auto stretch = least_used_stretch(units);
    if (!stretch) break;
    for (int pass = 0; pass < kPasses; ++pass) {
      dropped += clear(*stretch);
      if (keep(units)) return true;
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

// Looks at the next few. A record that may not go makes one useless.
std::optional<RunMaker::Stretch> RunMaker::least_used_stretch(std::uint64_t units) {
  constexpr std::size_t kFew = 8;
  constexpr std::uint64_t kUseless = std::uint64_t{1} << 32;
  std::array<Stretch, kFew> few;
  std::array<std::uint64_t, kFew> uses{};
  std::size_t count = 0;
  for (; count < kFew; ++count) {
    const auto stretch = next_stretch(units);
    if (!stretch) return std::nullopt;
    few[count] = *stretch;
  }
  table_.for_each_pair([&](const RecordTable::Pair& pair) {
    table_.index().each_resident(pair.even, [&](const Index::Resident& resident) {
      const Slot slot = resident.position.slot;
      for (std::size_t i = 0; i < kFew; ++i) {
        if (!is_in(slot, few[i])) continue;
        uses[i] += table_.record_at(slot.location()).in_cell ? kUseless : resident.uses;
      }
    });
  });
  return few[static_cast<std::size_t>(std::ranges::min_element(uses) - uses.begin())];
}

bool RunMaker::is_in(Slot slot, const Stretch& stretch) const {
  const Location at = slot.location();
  return at.extent() == stretch.extent && at.unit() < stretch.end &&
         at.unit() + table_.units_of(slot) > stretch.begin;
}

// Returns how many records it dropped: as a DELETE does, but their blocks are released at the end.
std::size_t RunMaker::clear(const Stretch& stretch) {
  std::size_t count = 0;
  table_.for_each_pair([&](const RecordTable::Pair& pair) {
    table_.index().each_resident(pair.even, [&](const Index::Resident& resident) {
      const Slot slot = resident.position.slot;
      if (count == kMostGone || !is_in(slot, stretch)) return;
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
