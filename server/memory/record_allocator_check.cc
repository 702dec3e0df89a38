// Checks of the allocator's bookkeeping.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "server/memory/record_allocator.h"
#include "server/memory/size_classes.h"

namespace rkv::server {

// ------------------------------------------------------------------------------------- one extent

std::uint32_t ExtentSpace::block_at(std::uint32_t unit) const {
  const MutexLock lock(mutex_);
  if (unit >= units_) return 0;
  const Page& page = pages_[number_of(unit)];
  return test(page.starts, unit) && !test(page.free, unit) ? length_in(page, unit) : 0;
}

// REQUIRES: an item starts at `unit`.
std::string ExtentSpace::check_item(std::uint32_t unit, std::uint32_t units) const {
  const Page& page = pages_[number_of(unit)];
  if (units == 0 || units > units_ - unit)
    return fmt::format("unit {}: the item has an impossible length of {} units", unit, units);
  const std::uint32_t last = number_of(unit + units - 1);
  if (last != number_of(unit) && pages_[last].entered_from != unit)
    return fmt::format("unit {}: the page where the item ends does not name its start", unit);
  if (!test(page.free, unit)) return {};
  if (page.longest < units && !is_closed(unit))
    return fmt::format("unit {}: a free run that is not listed", unit);
  if (unit + units < units_ && unit + units != closed_begin_ &&
      test(pages_[number_of(unit + units)].free, unit + units))
    return fmt::format("unit {}: two free runs that were not merged", unit);
  return {};
}

ExtentSpace::Tiling ExtentSpace::check() const {
  const MutexLock lock(mutex_);
  Tiling tiling;
  std::uint64_t items = 0;
  for (std::uint32_t unit = 0, units = 0; unit < units_; unit += units, ++items) {
    const Page& page = pages_[number_of(unit)];
    if (!test(page.starts, unit))
      return {.violation = fmt::format("unit {}: no item starts here", unit)};
    units = length_in(page, unit);
    tiling.violation = check_item(unit, units);
    if (!tiling.violation.empty()) return tiling;
    tiling.blocks += test(page.free, unit) ? 0 : 1;
  }
  std::uint64_t starts = 0;
  for (std::uint32_t number = 1; number <= units_ / kPageUnits; ++number) {
    for (const std::uint64_t word : pages_[number].starts)
      starts += static_cast<std::uint64_t>(std::popcount(word));
  }
  if (starts != items) tiling.violation = "an item starts inside another";
  return tiling;
}

// ------------------------------------------------------------------------------------ all extents

RecordAllocator::Check::Check(const RecordAllocator& records) : records_(records) {
  claimed_.resize(records.extent_count_.load(std::memory_order_acquire));
}

std::string RecordAllocator::Check::claim(Location block, std::uint64_t units) {
  const std::uint32_t number = records_.numbers_[block.extent()];
  const auto where = [&] {
    return fmt::format("extent {}, unit {}", block.extent(), block.unit());
  };
  if (number >= claimed_.size() || records_.extents_[number].id != block.extent())
    return where() + ": not a data extent";
  const std::uint32_t length = records_.extents_[number].space.block_at(block.unit());
  if (length == 0) return where() + ": a record uses a block that is not allocated";
  if (length != units)
    return fmt::format("{}: the record has {} units, its block has {}", where(), units, length);
  std::vector<bool>& claimed = claimed_[number];
  if (claimed.size() <= block.unit()) claimed.resize(block.unit() + 1);
  if (claimed[block.unit()]) return where() + ": two owners use this block";
  claimed[block.unit()] = true;
  units_ += units;
  return {};
}

bool RecordAllocator::Check::is_zero(Bytes bytes) {
  if (bytes.empty()) return true;
  const std::byte* const from = bytes.data();
  return from[0] == std::byte{} && std::memcmp(from, from + 1, bytes.size() - 1) == 0;
}

// Whether the items of an extent tile it, and those that were not claimed are zero (SCRUB-1).
// REQUIRES: only records were claimed.
std::string RecordAllocator::Check::check_extent(std::size_t number, std::uint64_t* blocks) const {
  const Extent& extent = records_.extents_[number];
  const ExtentSpace::Tiling tiling = extent.space.check();
  if (!tiling.violation.empty()) return fmt::format("extent {}: {}", extent.id, tiling.violation);
  *blocks = tiling.blocks;
  if (!records_.scrubs_) return {};
  const std::vector<bool>& claimed = claimed_[number];
  for (std::uint32_t unit = 0; unit < extent.units;) {
    const ExtentSpace::Item item = extent.space.item_of(unit);
    const std::byte* const bytes =
        records_.memory_.record(Location::of(extent.id, unit), item.units);
    const bool is_record = unit < claimed.size() && claimed[unit];
    if (!is_record && !is_zero({bytes, item.units * kUnitBytes}))
      return fmt::format("extent {}, unit {}: no record, and not zero (SCRUB-1)", extent.id, unit);
    unit += item.units;
  }
  return {};
}

std::string RecordAllocator::Check::finish() {
  const std::uint64_t used = records_.usage().used_bytes;
  if (used != units_ * kUnitBytes)
    return fmt::format("used_bytes is {}, but the records use {}", used, units_ * kUnitBytes);
  std::vector<std::uint64_t> blocks(claimed_.size());
  for (std::size_t number = 0; number < claimed_.size(); ++number) {
    if (std::string wrong = check_extent(number, &blocks[number]); !wrong.empty()) return wrong;
  }
  for (std::uint32_t i = 0; i < kClasses; ++i) {
    const SizeClass& c = records_.classes_[i];
    const MutexLock lock(c.mutex);
    std::uint64_t waiting = 0;
    for (const SizeClass::Waiting& each : c.waiting) {
      if (std::string wrong = claim(each.block.at, each.block.units); !wrong.empty())
        return wrong + " (a waiting block)";
      waiting += each.block.units;
    }
    if (waiting != c.waiting_units)
      return fmt::format("class {}: the count of waiting units is wrong", i);
    for (std::uint32_t k = 0; k < c.ready_count; ++k) {
      const auto block = Location::of(c.ready.extent(), c.ready.unit() + k * c.ready_units);
      if (std::string wrong = claim(block, c.ready_units); !wrong.empty())
        return wrong + " (a block that was cut ahead)";
    }
  }
  for (std::size_t number = 0; number < claimed_.size(); ++number) {
    const auto known = static_cast<std::uint64_t>(std::ranges::count(claimed_[number], true));
    if (known != blocks[number])
      return fmt::format("extent {}: {} blocks, {} of them accounted for",
                         records_.extents_[number].id, blocks[number], known);
  }
  return {};
}

}  // namespace rkv::server
