#include "server/memory/extent_space.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace rkv::server {

namespace {

// Limit on the runs that are examined in the bin of the requested length, whose runs may be too
// short. Longer runs are in the next bins. So the limit can only miss runs that are less than 1/32
// longer than the request.
constexpr std::uint32_t kMaxLooks = 64;
// Pages that close(), reopen() and blocks_in() look at under the lock.
constexpr std::uint32_t kPagesAtOnce = 8;

// The words that fit() reads without the lock (EXTENT-4).
std::uint64_t load(const std::uint64_t& word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_relaxed);
}
void store(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}

std::uint64_t bit_of(std::uint32_t unit) {
  return std::uint64_t{1} << (unit % 64);
}
std::uint32_t word_of(std::uint32_t unit) {
  return unit / 64 % 2;
}
std::uint32_t lowest(std::uint64_t word) {
  return static_cast<std::uint32_t>(std::countr_zero(word));
}
std::uint32_t highest(std::uint64_t word) {
  return 63 - static_cast<std::uint32_t>(std::countl_zero(word));
}

// Calls visit() with the first unit, counted within the page, of each free run that starts there.
template <typename Visit>
void for_free_runs(const ExtentSpace::Page& page, Visit visit) {
  for (std::uint32_t word = 0; word < 2; ++word) {
    for (std::uint64_t left = page.free[word]; left != 0; left &= left - 1)
      visit(word * 64 + lowest(left));
  }
}

}  // namespace

std::uint32_t ExtentSpace::bin_of(std::uint32_t units) {
  if (units <= kPageUnits) return units - 1;
  const auto log2 = static_cast<std::uint32_t>(std::bit_width(units)) - 1;  // 7 to 24
  return kPageUnits + (log2 - 7) * kBinsPerDoubling + (units >> (log2 - 5)) - kBinsPerDoubling;
}

void ExtentSpace::open(std::uint32_t units, Page* pages, Bins* bins,
                       std::atomic<std::uint64_t>* free_units) {
  const MutexLock lock(mutex_);
  RKV_CHECK(units >= kPageUnits && units % kPageUnits == 0, "an extent has whole pages");
  units_ = units;
  pages_ = pages;
  bins_ = bins;
  free_units_ = free_units;
  set_item(0, units, true);
  report_free();
}

// The distance to the next item of the page, or the length that the page stores for its last item.
std::uint32_t ExtentSpace::length_in(const Page& page, std::uint32_t unit) {
  const std::uint32_t at = unit % kPageUnits;
  const std::uint64_t after = ~(bit_of(at) | (bit_of(at) - 1));
  if (const std::uint64_t rest = page.starts[word_of(at)] & after; rest != 0)
    return at / 64 * 64 + lowest(rest) - at;
  if (at < 64) {
    if (const std::uint64_t rest = page.starts[1]; rest != 0) return 64 + lowest(rest) - at;
  }
  return page.last_units;
}

// REQUIRES: the items that the new item covers are cleared, and the items after it are set.
void ExtentSpace::set_item(std::uint32_t unit, std::uint32_t units, bool free) {
  const std::uint32_t number = number_of(unit);
  Page& page = pages_[number];
  const std::uint32_t word = word_of(unit);
  page.starts[word] |= bit_of(unit);
  if (free) {
    page.free[word] |= bit_of(unit);
    if (units >= kPageUnits) free_change_ += units;
  }
  const std::uint32_t at = unit % kPageUnits;
  const bool last = (page.starts[word] & ~(bit_of(at) | (bit_of(at) - 1))) == 0 &&
                    (at >= 64 || page.starts[1] == 0);
  if (last) {
    page.last_units = units;
    const std::uint32_t end = number_of(unit + units - 1);
    if (end != number) pages_[end].entered_from = unit;
  }
  if (free || page.longest != 0) relist(number);
}

void ExtentSpace::clear_item(std::uint32_t unit) {
  Page& page = page_of(unit);
  if (test(page.free, unit)) {
    const std::uint32_t units = length_in(page, unit);
    if (units >= kPageUnits) free_change_ -= units;
    page.free[word_of(unit)] &= ~bit_of(unit);
  }
  page.starts[word_of(unit)] &= ~bit_of(unit);
}

// First unit of the item that ends before `unit`. REQUIRES: unit > 0.
std::uint32_t ExtentSpace::item_before(std::uint32_t unit) const {
  const std::uint32_t end = unit - 1;
  const Page& page = pages_[number_of(end)];
  const std::uint32_t at = end % kPageUnits;
  const std::uint32_t page_start = end - at;
  std::uint64_t upto = page.starts[word_of(at)] & (bit_of(at) | (bit_of(at) - 1));
  if (upto != 0) return page_start + at / 64 * 64 + highest(upto);
  if (at >= 64 && page.starts[0] != 0) return page_start + highest(page.starts[0]);
  return page.entered_from;
}

ExtentSpace::Blocks ExtentSpace::allocate(std::uint32_t units, std::uint32_t most) {
  const MutexLock lock(mutex_);
  const std::uint32_t number = find_page(units);
  if (number == 0) return {};
  const std::uint32_t first = best_run_in(number, units);
  const std::uint32_t length = length_in(pages_[number], first);
  const std::uint32_t count = length > kPageUnits ? std::min(most, length / units) : 1;
  clear_item(first);
  // From the last to the first, as set_item() requires. The last call updates the page's list.
  if (length > count * units) set_item(first + count * units, length - count * units, true);
  for (std::uint32_t i = count; i-- > 0;)
    set_item(first + i * units, units, false);
  report_free();
  return {.first = first, .count = count};
}

void ExtentSpace::release(std::uint32_t unit, std::uint32_t units) {
  const MutexLock lock(mutex_);
  const Page& page = page_of(unit);
  RKV_CHECK(test(page.starts, unit) && !test(page.free, unit), "block freed twice");
  RKV_CHECK(length_in(page, unit) == units, "block freed with another length than it has");
  std::uint32_t first = unit;
  std::uint32_t end = unit + units;
  if (end < units_ && end != closed_begin_ && test(page_of(end).free, end)) {
    const std::uint32_t after = end;
    end += length_in(page_of(after), after);
    clear_item(after);
    if (number_of(after) != number_of(unit)) relist(number_of(after));
  }
  if (unit > 0 && unit != closed_begin_) {
    const std::uint32_t before = item_before(unit);
    if (test(page_of(before).free, before)) {
      clear_item(before);
      first = before;
    }
  }
  clear_item(unit);
  if (number_of(first) != number_of(unit)) relist(number_of(unit));
  set_item(first, end - first, true);
  report_free();
}

// The first nonempty bin at or after `from`, or kBins.
std::uint32_t ExtentSpace::first_used_bin(std::uint32_t from) const {
  if (from >= kBins) return kBins;
  const std::uint32_t word = from / 64;
  if (const std::uint64_t used = load(bins_->used[word]) & ~(bit_of(from) - 1); used != 0)
    return word * 64 + lowest(used);
  const std::uint64_t words = load(bins_->used_words) & ~(bit_of(word) | (bit_of(word) - 1));
  if (words == 0) return kBins;
  const std::uint64_t used = load(bins_->used[lowest(words)]);  // 0: it has just become empty
  return used == 0 ? kBins : lowest(words) * 64 + lowest(used);
}

std::uint32_t ExtentSpace::fit(std::uint32_t units) const {
  const std::uint32_t own = bin_of(units);
  const std::uint32_t found = first_used_bin(own);
  return found == kBins ? kNoFit : found - own;
}

// A page with a free run of at least this length, as short as possible. 0: none.
std::uint32_t ExtentSpace::find_page(std::uint32_t units) const {
  const std::uint32_t own = bin_of(units);
  std::uint32_t best = 0;
  if (units > kPageUnits) {
    std::uint32_t looks = 0;
    for (std::uint32_t number = bins_->first[own]; number != 0 && looks < kMaxLooks; ++looks) {
      const Page& page = pages_[number];
      if (page.longest >= units && (best == 0 || page.longest < pages_[best].longest))
        best = number;
      number = page.next;
    }
    if (best != 0) return best;
  }
  const std::uint32_t found = first_used_bin(units > kPageUnits ? own + 1 : own);
  return found == kBins ? 0 : bins_->first[found];
}

// The shortest run of the page that is long enough. REQUIRES: one exists.
std::uint32_t ExtentSpace::best_run_in(std::uint32_t number, std::uint32_t units) const {
  const Page& page = pages_[number];
  std::uint32_t best = 0;
  std::uint32_t best_length = ~std::uint32_t{0};
  const std::uint32_t start = (number - 1) * kPageUnits;
  for_free_runs(page, [&](std::uint32_t at) RKV_NO_THREAD_SAFETY_ANALYSIS {
    const std::uint32_t length = length_in(page, at);
    if (length < units || length >= best_length || is_closed(start + at)) return;
    best = at;
    best_length = length;
  });
  return start + best;
}

// Moves the page to the list of the bin of its longest free run that is not closed.
void ExtentSpace::relist(std::uint32_t number) {
  const Page& page = pages_[number];
  const std::uint32_t start = (number - 1) * kPageUnits;
  std::uint32_t longest = 0;
  for_free_runs(page, [&](std::uint32_t at) RKV_NO_THREAD_SAFETY_ANALYSIS {
    if (!is_closed(start + at)) longest = std::max(longest, length_in(page, at));
  });
  if (longest == page.longest) return;
  if (page.longest != 0) unlink(number);
  if (longest != 0) link(number, longest);
}

void ExtentSpace::link(std::uint32_t number, std::uint32_t longest) {
  const std::uint32_t bin = bin_of(longest);
  Page& page = pages_[number];
  page.longest = longest;
  page.previous = 0;
  page.next = bins_->first[bin];
  if (page.next != 0) pages_[page.next].previous = number;
  bins_->first[bin] = number;
  store(bins_->used[bin / 64], bins_->used[bin / 64] | bit_of(bin));
  store(bins_->used_words, bins_->used_words | bit_of(bin / 64));
}

void ExtentSpace::unlink(std::uint32_t number) {
  Page& page = pages_[number];
  const std::uint32_t bin = bin_of(page.longest);
  page.longest = 0;
  if (page.next != 0) pages_[page.next].previous = page.previous;
  if (page.previous != 0) {
    pages_[page.previous].next = page.next;
    return;
  }
  bins_->first[bin] = page.next;
  if (page.next != 0) return;
  store(bins_->used[bin / 64], bins_->used[bin / 64] & ~bit_of(bin));
  if (bins_->used[bin / 64] == 0) store(bins_->used_words, bins_->used_words & ~bit_of(bin / 64));
}

// ---- the closed range

// First unit of the item in which `unit` lies. Pages inside a long item do not say where it began.
std::uint32_t ExtentSpace::item_at(std::uint32_t unit) const {
  const std::uint32_t at = unit % kPageUnits;
  const std::uint64_t upto = bit_of(at) | (bit_of(at) - 1);
  std::array<std::uint64_t, 2> starts = pages_[number_of(unit)].starts;
  starts[word_of(at)] &= upto;
  if (at < 64) starts[1] = 0;
  std::uint32_t number = number_of(unit);
  while (starts[0] == 0 && starts[1] == 0)
    starts = pages_[--number].starts;
  const std::uint32_t word = starts[1] != 0 ? 1 : 0;
  return (number - 1) * kPageUnits + word * 64 + highest(starts[word]);
}

std::uint32_t ExtentSpace::close(std::uint32_t begin, std::uint32_t end) {
  std::uint32_t closed = 0;
  {
    const MutexLock lock(mutex_);
    RKV_CHECK(closed_begin_ == kNowhere && begin < end && end <= units_, "one range is closed");
    closed = item_at(begin);
    closed_begin_ = closed_end_ = closed;
  }
  for (std::uint32_t upto = closed; upto != end;) {
    const MutexLock lock(mutex_);
    const std::uint32_t number = number_of(upto);
    upto = std::min(end, (number - 1 + kPagesAtOnce) * kPageUnits);
    closed_end_ = upto;
    for (std::uint32_t page = number; page <= number_of(upto - 1); ++page)
      relist(page);
  }
  return closed;
}

ExtentSpace::Blocks ExtentSpace::allocate_closed(std::uint32_t units, std::uint32_t most) {
  const MutexLock lock(mutex_);
  const std::uint32_t first = closed_begin_;
  RKV_CHECK(first != kNowhere, "nothing is closed");
  const Page& page = page_of(first);
  const std::uint32_t length = length_in(page, first);
  if (!test(page.free, first) || length < units) return {};
  const std::uint32_t count = std::min(most, length / units);
  clear_item(first);
  if (length > count * units) set_item(first + count * units, length - count * units, true);
  for (std::uint32_t i = count; i-- > 0;)
    set_item(first + i * units, units, false);
  report_free();
  return {.first = first, .count = count};
}

// From the end to the beginning, where the two runs that did not merge do so.
void ExtentSpace::reopen() {
  for (;;) {
    const MutexLock lock(mutex_);
    const std::uint32_t last = number_of(closed_end_ - 1);
    const std::uint32_t first =
        std::max(number_of(closed_begin_), last - std::min(last, kPagesAtOnce));
    closed_end_ = std::max(closed_begin_, (first - 1) * kPageUnits);
    const bool is_last = closed_end_ == closed_begin_;
    const std::uint32_t unit = closed_begin_;
    if (is_last) closed_begin_ = closed_end_ = kNowhere;
    for (std::uint32_t page = first; page <= last; ++page)
      relist(page);
    if (!is_last) continue;
    const std::uint32_t before = unit == 0 ? unit : item_before(unit);
    if (before != unit && test(page_of(before).free, before) && test(page_of(unit).free, unit)) {
      const std::uint32_t units = unit - before + length_in(page_of(unit), unit);
      clear_item(before);
      clear_item(unit);
      if (number_of(before) != number_of(unit)) relist(number_of(unit));
      set_item(before, units, true);
    }
    report_free();
    return;
  }
}

std::size_t ExtentSpace::blocks_in(std::uint32_t* from, std::uint32_t end,
                                   std::span<Item> found) const {
  const MutexLock lock(mutex_);
  std::size_t count = 0;
  std::uint32_t unit = *from;
  const std::uint32_t last = number_of(unit) + kPagesAtOnce;
  while (unit < end && count < found.size() && number_of(unit) < last) {
    const Page& page = pages_[number_of(unit)];
    const std::uint32_t at = unit % kPageUnits;
    std::uint64_t starts = page.starts[word_of(at)] & ~(bit_of(at) - 1);
    std::uint32_t base = unit - at % 64;
    if (starts == 0) {
      unit = base + 64;  // of this page or the next
      continue;
    }
    const std::uint32_t start = base + lowest(starts);
    const std::uint32_t units = length_in(page, start);
    if (start < end && !test(page.free, start)) found[count++] = {.unit = start, .units = units};
    unit = start + units;
  }
  *from = unit;
  return count;
}

ExtentSpace::Item ExtentSpace::item_of(std::uint32_t unit) const {
  const MutexLock lock(mutex_);
  const std::uint32_t first = item_at(unit);
  return {.unit = first, .units = length_in(pages_[number_of(first)], first)};
}

std::uint32_t ExtentSpace::longest_free() const {
  const std::uint64_t words = load(bins_->used_words);
  if (words == 0) return 0;
  const std::uint32_t word = highest(words);
  const std::uint64_t used = load(bins_->used[word]);
  if (used == 0) return 0;  // it has just become empty
  const std::uint32_t bin = word * 64 + highest(used);
  if (bin < kPageUnits) return bin + 1;
  // The shortest run of the bin (bin_of()).
  const std::uint32_t above = bin - kPageUnits;
  return (above % kBinsPerDoubling + kBinsPerDoubling) << (above / kBinsPerDoubling + 2);
}

void ExtentSpace::report_free() {
  if (free_change_ != 0) free_units_->fetch_add(free_change_, std::memory_order_relaxed);
  free_change_ = 0;
}

}  // namespace rkv::server
