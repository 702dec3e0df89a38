#include "server/records_pages.h"

#include <algorithm>
#include <bit>
#include <new>
#include <type_traits>

#include "common/check.h"

namespace rkv::server {

// calloc: zero is what an unused Page is, and pages of the book-keeping itself exist from their
// first use on.
Pages::Pages(std::size_t max_bytes)
    : room_(max_bytes / (kPageUnits * kUnitBytes) + kMaxExtents + 1),
      pages_(static_cast<Page*>(std::calloc(room_, sizeof(Page)))) {
  static_assert(std::is_trivially_copyable_v<Page>);
  if (pages_ == nullptr) throw std::bad_alloc();
}

void Pages::add_extent(const StoreMemory::Extent& extent) {
  const std::scoped_lock lock(mutex_);
  const auto count = static_cast<std::uint32_t>(extent.units() / kPageUnits);
  RKV_CHECK(end_ + count < room_, "more data extents than the limit allows");
  bases_[extent.id] = end_;
  for (std::uint32_t i = 0; i < count; ++i)
    pages_[end_ + i].extent = static_cast<std::uint16_t>(extent.id);
  link(end_, count);
  end_ += count + 1;
  page_count_.fetch_add(count, std::memory_order_relaxed);
  free_pages_.fetch_add(count, std::memory_order_relaxed);
}

std::uint32_t Pages::bin(std::uint32_t pages) {
  if (pages <= kExactBins) return pages - 1;
  const auto doubling = static_cast<std::uint32_t>(std::bit_width((pages - 1) / kExactBins)) - 1;
  return std::min(kExactBins + doubling, kBins - 1);
}

// The first bin from `from` on that is not empty, or kBins.
std::uint32_t Pages::first_used_bin(std::uint32_t from) const {
  for (std::uint32_t word = from / 64; word < bins_used_.size(); ++word) {
    std::uint64_t used = bins_used_[word];
    if (word == from / 64) used = used >> (from % 64) << (from % 64);
    if (used != 0) return word * 64 + static_cast<std::uint32_t>(std::countr_zero(used));
  }
  return kBins;
}

// The shortest run that is long enough, of the exact bins; of a doubling, the first one found. A
// doubling that the length itself lies in is searched run by run: there are few, for they are long.
std::uint32_t Pages::find_run(std::uint32_t pages) const {
  const std::uint32_t own = bin(pages);
  if (own >= kExactBins) {
    for (std::uint32_t run = bins_[own]; run != kNoPage; run = pages_[run].next) {
      if (pages_[run].run_pages >= pages) return run;
    }
  }
  const std::uint32_t found = first_used_bin(own < kExactBins ? own : own + 1);
  return found == kBins ? kNoPage : bins_[found];
}

void Pages::link(std::uint32_t first, std::uint32_t pages) {
  const std::uint32_t b = bin(pages);
  Page& head = pages_[first];
  Page& tail = pages_[first + pages - 1];
  head.free = tail.free = true;
  head.run_pages = tail.run_pages = pages;
  head.previous = kNoPage;
  head.next = bins_[b];
  if (head.next != kNoPage) pages_[head.next].previous = first;
  bins_[b] = first;
  bins_used_[b / 64] |= std::uint64_t{1} << (b % 64);
}

void Pages::unlink(std::uint32_t first) {
  Page& head = pages_[first];
  const std::uint32_t b = bin(head.run_pages);
  head.free = pages_[first + head.run_pages - 1].free = false;
  if (head.next != kNoPage) pages_[head.next].previous = head.previous;
  if (head.previous != kNoPage) {
    pages_[head.previous].next = head.next;
  } else {
    bins_[b] = head.next;
    if (head.next == kNoPage) bins_used_[b / 64] &= ~(std::uint64_t{1} << (b % 64));
  }
}

std::uint32_t Pages::allocate_run(std::uint32_t pages) {
  RKV_CHECK(pages >= 1, "run length");
  const std::scoped_lock lock(mutex_);
  const std::uint32_t first = find_run(pages);
  if (first == kNoPage) return kNoPage;
  const std::uint32_t length = pages_[first].run_pages;
  unlink(first);
  if (length > pages) link(first + pages, length - pages);
  pages_[first].run_pages = pages;
  free_pages_.fetch_sub(pages, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < std::min(pages, kMaxSpanPages); ++i)
    pages_[first + i].span_page = static_cast<std::uint8_t>(i);
  return first;
}

void Pages::release_run(std::uint32_t first) {
  const std::scoped_lock lock(mutex_);
  std::uint32_t length = pages_[first].run_pages;
  free_pages_.fetch_add(length, std::memory_order_relaxed);
  // Fences are never free, so runs do not join across extents.
  if (const Page& after = pages_[first + length]; after.free) {
    const std::uint32_t more = after.run_pages;
    unlink(first + length);
    length += more;
  }
  if (const Page& before = pages_[first - 1]; before.free) {
    const std::uint32_t more = before.run_pages;
    first -= more;
    unlink(first);
    length += more;
  }
  link(first, length);
}

}  // namespace rkv::server
