#include "server/memory/record_allocator.h"

#include <algorithm>
#include <bit>
#include <new>
#include <type_traits>
#include <utility>

#include "common/check.h"
#include "server/memory/memory_sizes.h"
#include "server/memory/publish_hooks.h"
#include "server/memory/size_classes.h"

namespace rkv::server {

namespace {

// Blocks of up to this many units are cut from long runs a page at a time.
constexpr std::uint32_t kMaxCutAhead = 16;
// Number of extents that are compared for the best fit: all extents, up to 8 GiB.
constexpr std::uint32_t kCompared = 16;
// Each operation puts back up to this many old blocks. With one, blocks that wait after a burst
// would accumulate.
constexpr std::uint32_t kRetirePerCall = 2;
// How often an operation that finds no space ends the wait of all freed blocks. Each takes some
// microseconds.
constexpr int kRounds = 4;

// Unused bookkeeping is zero, and its pages are allocated on first use. Fails as `new` does, which
// Server::start() reports.
template <typename T>
T* zeroed(std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  void* const memory = std::calloc(count, sizeof(T));
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

std::size_t most_extents(const StoreMemory& memory) {
  return std::min<std::size_t>(kMaxExtents, memory.max_data_bytes() / kMinDataExtentBytes + 1);
}

}  // namespace

std::uint32_t size_class_of(std::uint64_t units) {
  if (units <= 16) return static_cast<std::uint32_t>(units) - 1;
  if (units > kLongestInline) return kHugeClass;
  return class_by_doubling(static_cast<std::uint32_t>(units));
}

RecordAllocator::RecordAllocator(const StoreMemory& memory, const Clock& clock, Nanos min_age)
    : memory_(memory),
      clock_(clock),
      scrubs_(memory.is_scrubbed()),
      classes_(std::make_unique<SizeClass[]>(kClasses)),
      max_extents_(most_extents(memory)),
      extents_(std::make_unique<Extent[]>(max_extents_)),
      max_pages_(memory.max_data_bytes() / (kPageUnits * kUnitBytes) + max_extents_),
      pages_(zeroed<ExtentSpace::Page>(max_pages_)),
      bins_(zeroed<ExtentSpace::Bins>(max_extents_)) {
  for (std::uint32_t i = 0; i < kClasses; ++i)
    classes_[i].min_age = i == kHugeClass ? kHugeAgeFactor * min_age : min_age;
  for (std::uint32_t id = 0; id < memory.extent_count(); ++id) {
    if (memory.extent(id).kind == ExtentEntry::kData) add_extent(memory.extent(id));
  }
}

RecordAllocator::~RecordAllocator() = default;

void RecordAllocator::add_extent(const StoreMemory::Extent& extent) {
  const std::uint32_t number = extent_count_.load(std::memory_order_relaxed);
  const auto pages = static_cast<std::uint32_t>(extent.units() / kPageUnits);
  RKV_CHECK(number < max_extents_ && pages_used_ + pages + 1 <= max_pages_,
            "more data extents than the limit allows");
  extents_[number].id = extent.id;
  extents_[number].units = pages * kPageUnits;
  extents_[number].space.open(pages * kPageUnits, &pages_[pages_used_], &bins_[number],
                              &free_units_);
  numbers_[extent.id] = static_cast<std::uint16_t>(number);
  pages_used_ += pages + 1;
  capacity_units_.fetch_add(std::uint64_t{pages} * kPageUnits, std::memory_order_relaxed);
  extent_count_.store(number + 1, std::memory_order_release);
}

std::optional<Location> RecordAllocator::allocate(std::uint64_t wanted) {
  RKV_CHECK(wanted >= 1 && wanted <= record_units(kMaxRecordBytes), "record size");
  const auto units = static_cast<std::uint32_t>(wanted);
  SizeClass& c = classes_[size_class_of(units)];
  auto block = take_waiting(c, units, clock_.now());
  if (!block) block = take_free(c, units);
  // Blocks that wait, or that were cut ahead for other sizes, may give enough space. While this
  // thread does not run, others may take all of it, and free what they have had.
  for (int round = 0; round < kRounds && !block; ++round) {
    put_back_everything();
    block = take_from_any(c, units);
  }
  return block;
}

// SCRUB-1. Readers may READ the block meanwhile. What they see does not verify: a record without
// its first word or some of its bytes, or zeros, which are no record's lengths.
void RecordAllocator::scrub(Location block, std::uint64_t units) const {
  auto* words = reinterpret_cast<std::uint64_t*>(memory_.record(block, units));
  constexpr std::uint64_t kUnitWords = kUnitBytes / sizeof(std::uint64_t);
  for (const std::uint64_t* const end = words + units * kUnitWords; words != end;
       words += kUnitWords) {
    for (std::uint64_t i = 0; i < kUnitWords; ++i) {
      store_word(words + i, 0);
      after_step(Step::kScrubbed, words + i);
    }
  }
}

void RecordAllocator::release(Location at, std::uint64_t units) {
  if (scrubs_) [[unlikely]]
    scrub(at, units);
  release_unwritten(at, units);
}

void RecordAllocator::release_unwritten(Location at, std::uint64_t units) {
  const Block block{.at = at, .units = static_cast<std::uint32_t>(units)};
  SizeClass& c = classes_[size_class_of(units)];
  const Nanos now = clock_.now();
  std::array<Block, kRetirePerCall> due;
  std::uint32_t due_count = 0;
  {
    const MutexLock lock(c.mutex);
    c.used_units -= units;
    try {
      c.waiting.push_back({.since = now, .block = block});
      c.waiting_units += units;
    } catch (const std::bad_alloc&) {
      due[due_count++] = block;  // without the wait, which only serves slow readers
    }
    const Nanos then = c.waiting.size() > kMaxWaiting ? now + c.min_age : now;
    while (due_count < kRetirePerCall && c.is_due(then))
      due[due_count++] = c.pop_waiting();
  }
  for (std::uint32_t i = 0; i < due_count; ++i)
    put_back(due[i]);
}

std::optional<Location> RecordAllocator::take_ready(SizeClass& c, std::uint32_t units)
    RKV_REQUIRES(c.mutex) {
  if (c.ready_count == 0 || c.ready_units != units) return std::nullopt;
  const Location block = c.ready;
  c.ready = Location::of(block.extent(), block.unit() + units);
  --c.ready_count;
  return block;
}

// Returns a block of exactly this size that has waited long enough, or one that was cut ahead. Puts
// back other blocks whose wait is over.
std::optional<Location> RecordAllocator::take_waiting(SizeClass& c, std::uint32_t units,
                                                      Nanos now) {
  std::array<Block, kRetirePerCall> due;
  std::uint32_t due_count = 0;
  std::optional<Location> block;
  {
    const MutexLock lock(c.mutex);
    while (!block && due_count < kRetirePerCall && c.is_due(now)) {
      const Block oldest = c.pop_waiting();
      if (oldest.units == units) {
        block = oldest.at;
      } else {
        due[due_count++] = oldest;
      }
    }
    if (!block) block = take_ready(c, units);
    if (block) c.used_units += units;
  }
  for (std::uint32_t i = 0; i < due_count; ++i)
    put_back(due[i]);
  return block;
}

// Allocates from the extents, a few at a time, beginning with those where this class found space
// last. Tries the best fit of the few first. The fit is a hint; if it fails, tries each of them.
std::optional<Location> RecordAllocator::take_free(SizeClass& c, std::uint32_t units) {
  const std::uint32_t count = extent_count_.load(std::memory_order_acquire);
  const std::uint32_t start = c.extent.load(std::memory_order_relaxed);
  for (std::uint32_t done = 0; done < count; done += kCompared) {
    const std::uint32_t from = start + done < count ? start + done : start + done - count;
    const std::uint32_t few = std::min(kCompared, count - done);
    const auto at = [&](std::uint32_t i) -> Extent& {
      return extents_[from + i < count ? from + i : from + i - count];
    };
    std::uint32_t best = 0;
    std::uint32_t best_fit = ExtentSpace::kNoFit;
    for (std::uint32_t i = 0; i < few && best_fit != 0; ++i) {
      const std::uint32_t fit = at(i).space.fit(units);
      if (fit < best_fit) {
        best = i;
        best_fit = fit;
      }
    }
    if (best_fit == ExtentSpace::kNoFit) continue;
    auto block = take_from(at(best), c, units);
    for (std::uint32_t i = 0; i < few && !block; ++i) {
      if (at(i).space.fit(units) != ExtentSpace::kNoFit) block = take_from(at(i), c, units);
    }
    if (!block) continue;
    if (done != 0) c.extent.store(from, std::memory_order_relaxed);
    return block;
  }
  return std::nullopt;
}

// Looks into each extent under its lock. A hint would not do: while another thread cuts a block
// from the only run of an extent, the extent seems to have none. The write would be refused for
// lack of memory, although nearly all of it may be free.
std::optional<Location> RecordAllocator::take_from_any(SizeClass& c, std::uint32_t units) {
  std::optional<Location> block;
  for (std::uint32_t number = 0; number < extents() && !block; ++number)
    block = take_from(extents_[number], c, units);
  return block;
}

std::optional<Location> RecordAllocator::take_from(Extent& extent, SizeClass& c,
                                                   std::uint32_t units) {
  const std::uint32_t most = units <= kMaxCutAhead ? kPageUnits / units : 1;
  const ExtentSpace::Blocks blocks = extent.space.allocate(units, most);
  if (blocks.count == 0) return std::nullopt;
  keep_ready(c, Location::of(extent.id, blocks.first + units), blocks.count - 1, units);
  return Location::of(extent.id, blocks.first);
}

// Counts the caller's block as used, and keeps the blocks after it for the next allocations.
void RecordAllocator::keep_ready(SizeClass& c, Location first, std::uint32_t count,
                                 std::uint32_t units) {
  {
    const MutexLock lock(c.mutex);
    c.used_units += units;
    if (count == 0) return;
    std::swap(c.ready, first);
    std::swap(c.ready_count, count);
    std::swap(c.ready_units, units);
  }
  put_back(first, count, units);  // another thread's, if both cut at the same time
}

void RecordAllocator::put_back(Location first, std::uint32_t count, std::uint32_t units) {
  for (std::uint32_t i = 0; i < count; ++i)
    space_of(first).release(first.unit() + i * units, units);
}

void RecordAllocator::put_back_everything() {
  for (std::uint32_t i = 0; i < kClasses; ++i) {
    SizeClass& c = classes_[i];
    const MutexLock lock(c.mutex);
    while (!c.waiting.empty())
      put_back(c.pop_waiting());
    put_back(c.ready, std::exchange(c.ready_count, 0), c.ready_units);
  }
}

std::size_t RecordAllocator::allocate_closed(std::uint32_t number, std::uint64_t units,
                                             std::span<Location> blocks) {
  Extent& extent = extents_[number];
  const ExtentSpace::Blocks found = extent.space.allocate_closed(
      static_cast<std::uint32_t>(units), static_cast<std::uint32_t>(blocks.size()));
  for (std::uint32_t i = 0; i < found.count; ++i)
    blocks[i] = Location::of(extent.id, found.first + i * static_cast<std::uint32_t>(units));
  SizeClass& c = classes_[size_class_of(units)];
  const MutexLock lock(c.mutex);
  c.used_units += found.count * units;
  return found.count;
}

void RecordAllocator::release_at_once(Location at, std::uint64_t units) {
  if (scrubs_) [[unlikely]]
    scrub(at, units);
  {
    SizeClass& c = classes_[size_class_of(units)];
    const MutexLock lock(c.mutex);
    c.used_units -= units;
  }
  put_back({.at = at, .units = static_cast<std::uint32_t>(units)});
}

std::uint64_t RecordAllocator::longest_free_bytes() const {
  std::uint64_t longest = 0;
  for (std::uint32_t number = 0; number < extents(); ++number)
    longest = std::max<std::uint64_t>(longest, extents_[number].space.longest_free());
  return longest * kUnitBytes;
}

RecordAllocator::Usage RecordAllocator::usage() const {
  Usage usage{.capacity_bytes = capacity_units_.load(std::memory_order_relaxed) * kUnitBytes};
  for (std::uint32_t i = 0; i < kClasses; ++i) {
    const SizeClass& c = classes_[i];
    const MutexLock lock(c.mutex);
    usage.used_bytes += c.used_units * kUnitBytes;
    usage.waiting_bytes += c.waiting_units * kUnitBytes;
  }
  return usage;
}

}  // namespace rkv::server
