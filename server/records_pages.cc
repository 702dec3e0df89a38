#include "server/records_pages.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace rkv::server {

Pages::Pages(std::span<const StoreMemory::Extent> extents) : first_extent_(extents.front().id) {
  std::size_t total = 1;  // the fence at number 0; another after each extent
  for (const auto& extent : extents)
    total += extent.units() / kPageUnits + 1;
  pages_.resize(total);
  std::uint32_t at = 1;
  for (const auto& extent : extents) {
    const auto count = static_cast<std::uint32_t>(extent.units() / kPageUnits);
    bases_.push_back(at);
    for (std::uint32_t i = 0; i < count; ++i)
      pages_[at + i].extent = static_cast<std::uint16_t>(extent.id);
    link(at, count);
    page_count_ += count;
    at += count + 1;
  }
}

std::uint32_t Pages::bin(std::uint32_t pages) {
  return std::clamp(pages, 1U, kMaxRunPages) - 1;
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
  bins_used_ |= std::uint64_t{1} << b;
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
    if (head.next == kNoPage) bins_used_ &= ~(std::uint64_t{1} << b);
  }
}

// The shortest run that is long enough; any of the last bin is.
std::uint32_t Pages::allocate_run(std::uint32_t pages) {
  RKV_CHECK(pages >= 1 && pages <= kMaxRunPages, "run length");
  const std::scoped_lock lock(mutex_);
  const std::uint64_t long_enough = bins_used_ >> (pages - 1) << (pages - 1);
  if (long_enough == 0) return kNoPage;
  const std::uint32_t first = bins_[static_cast<std::uint32_t>(std::countr_zero(long_enough))];
  const std::uint32_t length = pages_[first].run_pages;
  unlink(first);
  if (length > pages) link(first + pages, length - pages);
  pages_[first].run_pages = pages;
  for (std::uint32_t i = 0; i < pages; ++i)
    pages_[first + i].span_page = static_cast<std::uint8_t>(i);
  return first;
}

void Pages::release_run(std::uint32_t first) {
  const std::scoped_lock lock(mutex_);
  std::uint32_t length = pages_[first].run_pages;
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
