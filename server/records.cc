#include "server/records.h"

#include <algorithm>
#include <bit>
#include <deque>

#include "common/check.h"

namespace rkv::server {

namespace {

constexpr std::uint32_t kLargeClass = kSmallClasses;
constexpr std::uint32_t kHugeClass = kLargeClass + 1;  // records of large values
constexpr std::uint32_t kClasses = kHugeClass + 1;
constexpr std::uint32_t kMaxBlocksPerSpan = 128;  // bits of Page::free_blocks
// Each release retires up to this many others: more than one, so that waiting blocks cannot
// accumulate after a burst.
constexpr std::uint32_t kRetirePerCall = 2;

std::uint32_t pages_for(std::uint64_t units) {
  return static_cast<std::uint32_t>((units + kPageUnits - 1) / kPageUnits);
}

// The fewest pages of which blocks of this size leave at most 1/16 unused.
std::uint32_t span_pages_for(std::uint32_t units) {
  for (std::uint32_t pages = 1;; ++pages) {
    const std::uint32_t total = pages * kPageUnits;
    if (total >= units && (total % units) * 16 <= total) return pages;
  }
}

}  // namespace

std::uint32_t size_class_of(std::uint64_t units) {
  if (units <= 16) return static_cast<std::uint32_t>(units) - 1;
  if (units > record_units(kMaxInlineRecordBytes)) return kHugeClass;
  if (units > kMaxSmallUnits) return kLargeClass;
  const auto last = static_cast<std::uint32_t>(units) - 1;
  const auto log2 = static_cast<std::uint32_t>(std::bit_width(last)) - 1;  // 4 to 9
  return 16 + (log2 - 4) * 8 + (last >> (log2 - 3)) - 8;
}

std::uint32_t size_class_units(std::uint32_t size_class) {
  if (size_class < 16) return size_class + 1;
  const std::uint32_t doubling = (size_class - 16) / 8;
  return ((size_class - 16) % 8 + 9) << (doubling + 1);
}

struct alignas(64) RecordAllocator::SizeClass {
  struct Waiting {
    Nanos since;
    Location block;
  };
  mutable std::mutex mutex;
  Nanos min_age = 0;
  std::uint32_t units = 0;  // of a block; 0 for runs of pages
  std::uint32_t span_pages = 0;
  std::uint32_t blocks_per_span = 0;
  std::uint32_t partial = kNoPage;  // spans with both free and used blocks
  std::uint64_t used_units = 0;
  std::uint64_t waiting_units = 0;
  std::deque<Waiting> waiting;  // oldest first
};

RecordAllocator::RecordAllocator(const StoreMemory& memory, const Clock& clock, Nanos min_age)
    : clock_(clock),
      pages_(memory.max_data_bytes()),
      classes_(std::make_unique<SizeClass[]>(kClasses)) {
  for (std::uint32_t i = 0; i < kClasses; ++i)
    classes_[i].min_age = i == kHugeClass ? kHugeAgeFactor * min_age : min_age;
  for (std::uint32_t i = 0; i < kSmallClasses; ++i) {
    SizeClass& c = classes_[i];
    c.units = size_class_units(i);
    c.span_pages = span_pages_for(c.units);
    c.blocks_per_span = c.span_pages * kPageUnits / c.units;
    RKV_CHECK(c.blocks_per_span <= kMaxBlocksPerSpan && c.span_pages <= Pages::kMaxSpanPages,
              "span geometry");
  }
  for (std::uint32_t id = 0; id < memory.extent_count(); ++id) {
    if (memory.extent(id).kind == ExtentEntry::kData) add_extent(memory.extent(id));
  }
}

RecordAllocator::~RecordAllocator() = default;

std::optional<Location> RecordAllocator::allocate(std::uint64_t units) {
  RKV_CHECK(units >= 1 && units <= record_units(kMaxRecordBytes), "record size");
  SizeClass& c = classes_[size_class_of(units)];
  const Nanos now = clock_.now();
  {
    const std::scoped_lock lock(c.mutex);
    retire(c, now, kRetirePerCall);
    if (const auto block = take(c, units)) return block;
  }
  // No pages are left; blocks that still wait may free some. Another thread may take them first:
  // then there is no room indeed. (A free block of a larger class instead was tried: it lowered the
  // utilisation in tests/server/core/churn_test.cc by up to 5 points.)
  retire_everything();
  const std::scoped_lock lock(c.mutex);
  return take(c, units);
}

void RecordAllocator::release(Location block) {
  SizeClass& c = class_at(block);
  const Nanos now = clock_.now();
  const std::scoped_lock lock(c.mutex);
  const std::uint32_t page = pages_.page_of(block);
  const std::uint64_t units = c.units != 0 ? c.units : pages_[page].run_pages * kPageUnits;
  c.used_units -= units;
  c.waiting_units += units;
  try {
    c.waiting.push_back({.since = now, .block = block});
  } catch (const std::bad_alloc&) {
    put_back(c, block);  // without the wait, which is for the readers' comfort only
    return;
  }
  retire(c, c.waiting.size() > kMaxWaiting ? now + c.min_age : now, kRetirePerCall);
}

// The class that the block was allocated from. Constant while the block is in use, so that its
// owner may read it without a lock.
RecordAllocator::SizeClass& RecordAllocator::class_at(Location block) {
  const std::uint32_t page = pages_.page_of(block);
  return classes_[pages_[page - pages_[page].span_page].size_class];
}

// Takes blocks that have waited long enough (`at_most` of them) back into their spans.
void RecordAllocator::retire(SizeClass& c, Nanos now, std::uint32_t at_most) {
  while (at_most-- > 0 && !c.waiting.empty() && c.waiting.front().since + c.min_age <= now) {
    const Location block = c.waiting.front().block;
    c.waiting.pop_front();
    put_back(c, block);
  }
}

void RecordAllocator::retire_everything() {
  for (std::uint32_t i = 0; i < kClasses; ++i) {
    SizeClass& c = classes_[i];
    const std::scoped_lock lock(c.mutex);
    for (; !c.waiting.empty(); c.waiting.pop_front())
      put_back(c, c.waiting.front().block);
  }
}

std::optional<Location> RecordAllocator::take(SizeClass& c, std::uint64_t units) {
  if (c.units == 0) {
    const std::uint32_t first = pages_.allocate_run(pages_for(units));
    if (first == kNoPage) return std::nullopt;
    pages_[first].size_class = size_class_of(units);
    c.used_units += std::uint64_t{pages_for(units)} * kPageUnits;
    return pages_.location(first);
  }
  if (c.partial == kNoPage) {
    const std::uint32_t span = pages_.allocate_run(c.span_pages);
    if (span == kNoPage) return std::nullopt;
    Page& fresh = pages_[span];
    fresh.size_class = size_class_of(c.units);
    fresh.free_count = c.blocks_per_span;
    for (std::uint32_t word = 0; word < 2; ++word) {
      const std::uint32_t left = c.blocks_per_span - std::min(c.blocks_per_span, word * 64);
      fresh.free_blocks[word] = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
    }
    link(c, span);
  }
  const std::uint32_t span = c.partial;
  Page& page = pages_[span];
  const std::uint32_t word = page.free_blocks[0] != 0 ? 0 : 1;
  const auto bit = static_cast<std::uint32_t>(std::countr_zero(page.free_blocks[word]));
  page.free_blocks[word] &= page.free_blocks[word] - 1;
  if (--page.free_count == 0) unlink(c, span);
  c.used_units += c.units;
  const Location start = pages_.location(span);
  return Location::of(start.extent(), start.unit() + (word * 64 + bit) * c.units);
}

void RecordAllocator::put_back(SizeClass& c, Location block) {
  if (c.units != 0) {
    put_back_small(c, block);
    return;
  }
  const std::uint32_t first = pages_.page_of(block);
  c.waiting_units -= std::uint64_t{pages_[first].run_pages} * kPageUnits;
  pages_.release_run(first);
}

void RecordAllocator::put_back_small(SizeClass& c, Location block) {
  const std::uint32_t at = pages_.page_of(block);
  const std::uint32_t span = at - pages_[at].span_page;
  Page& page = pages_[span];
  const std::uint32_t number = (block.unit() - pages_.location(span).unit()) / c.units;
  const std::uint64_t bit = std::uint64_t{1} << (number % 64);
  RKV_CHECK((page.free_blocks[number / 64] & bit) == 0, "block freed twice");
  page.free_blocks[number / 64] |= bit;
  c.waiting_units -= c.units;
  // Nearly full spans come to the front of the list and are filled up first, which leaves the
  // others a chance to become empty.
  if (++page.free_count == 1) link(c, span);
  if (page.free_count == c.blocks_per_span) {
    unlink(c, span);
    pages_.release_run(span);
  }
}

void RecordAllocator::link(SizeClass& c, std::uint32_t span) {
  pages_[span].previous = kNoPage;
  pages_[span].next = c.partial;
  if (c.partial != kNoPage) pages_[c.partial].previous = span;
  c.partial = span;
}

void RecordAllocator::unlink(SizeClass& c, std::uint32_t span) {
  const Page& page = pages_[span];
  if (page.next != kNoPage) pages_[page.next].previous = page.previous;
  if (page.previous != kNoPage) {
    pages_[page.previous].next = page.next;
  } else {
    c.partial = page.next;
  }
}

RecordAllocator::Usage RecordAllocator::usage() const {
  Usage usage{.capacity_bytes = pages_.page_count() * kPageUnits * kUnitBytes};
  for (std::uint32_t i = 0; i < kClasses; ++i) {
    const SizeClass& c = classes_[i];
    const std::scoped_lock lock(c.mutex);
    usage.used_bytes += c.used_units * kUnitBytes;
    usage.waiting_bytes += c.waiting_units * kUnitBytes;
  }
  return usage;
}

}  // namespace rkv::server
