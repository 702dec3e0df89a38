// ExtentSpace: which units of one data extent hold blocks. Allocates best fit among the runs of
// free units; neighbouring free runs merge at once. The lower layer of the RecordAllocator.
//
// Invariants:
//  EXTENT-1  Blocks and free runs ("items") tile the extent: each begins where the one before it
//      ends.
//  EXTENT-2  No two free runs are neighbours, except at the beginning of the closed range.
//  EXTENT-3  Every page in which free runs start that are not closed is in exactly one list: the
//      list of the longest of these runs.
//  EXTENT-4  Only fit() reads without the lock, and only Bins::used and Bins::used_words. Its
//      result is a hint; allocate() checks again under the lock. Everything else is read and
//      written under the lock. In particular, the bits around a block give its length only under
//      the lock: allocate() and release() clear the start bit of a neighbour and set it again. In
//      between, the block seems to reach to the item after that neighbour. So the owner of a block
//      keeps its length, and release() compares that length with the bits.
//  EXTENT-5  A free run that starts in the closed range is in no list, and so nobody gets a part of
//      it but allocate_closed(). An item starts where the range begins. A free run before that
//      does not merge with it. So what becomes free in the range stays free for who has closed it.
//
// The bookkeeping lies outside the extents: clients may still be READing a freed block, and only
// records are ever written there. It takes 56 bytes per page of 4 KiB: 1.4 % of the data.
//
// Thread safety: any thread. One lock, innermost, is held for some 100 ns whatever the sizes. fit()
// takes no lock. The closed range: one thread at a time. Its operations hold the lock for a few
// pages each, and release it in between.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::server {

inline constexpr std::uint32_t kPageUnits = 128;  // 4 KiB

class ExtentSpace {
 public:
  // Bookkeeping of a page.
  struct Page {
    std::array<std::uint64_t, 2> starts{};  // bit i: an item starts at unit i
    std::array<std::uint64_t, 2> free{};    // bit i: that item is a free run
    std::uint32_t last_units = 0;           // length of the last item that starts here
    std::uint32_t entered_from = 0;  // first unit of the item from earlier pages that ends here
    std::uint32_t longest = 0;       // longest free run that starts here; 0: not listed
    std::uint32_t next = 0;          // next page in the list of the bin of `longest`; 0: none
    std::uint32_t previous = 0;
  };

  // Bins of free runs by length. Each length up to a page has a bin; then there are 32 to a
  // doubling.
  static constexpr std::uint32_t kBinsPerDoubling = 32;
  static constexpr std::uint32_t kBins = kPageUnits + 18 * kBinsPerDoubling;
  static constexpr std::uint32_t kBinWords = kBins / 64;
  static_assert(kBins % 64 == 0);
  struct Bins {
    std::array<std::uint32_t, kBins> first{};     // first page of the list, or 0
    std::array<std::uint64_t, kBinWords> used{};  // bit: the bin is not empty
    std::uint64_t used_words = 0;                 // bit: the word of `used` is not 0
  };

  // Makes the whole extent one free run. `pages`: zeroed, one more than the extent has, because
  // page numbers start at 1. `bins`: zeroed. `free_units` counts the units in free runs of a page
  // or more, of all extents together; the object keeps it up to date. All three must outlive the
  // object. Call it once, before any other operation.
  void open(std::uint32_t units, Page* pages, Bins* bins, std::atomic<std::uint64_t>* free_units);

  struct Blocks {
    std::uint32_t first = 0;
    std::uint32_t count = 0;  // 0: no free run is long enough
  };
  // Allocates a block of so many units from a run that fits best. If that run is longer than a
  // page, allocates up to `most` such blocks, one after the other.
  Blocks allocate(std::uint32_t units, std::uint32_t most);
  // REQUIRES: a whole block from allocate(). Ends the process for anything else.
  void release(std::uint32_t unit, std::uint32_t units);

  // ---- the closed range

  // Closes the extent from the item on in which `begin` lies up to `end`, and returns where that
  // item begins. REQUIRES: nothing is closed.
  std::uint32_t close(std::uint32_t begin, std::uint32_t end);
  // Allocates at most `most` blocks from the free run at the beginning of the closed range.
  Blocks allocate_closed(std::uint32_t units, std::uint32_t most);
  // Whatever is free in the range can be allocated again.
  void reopen();

  struct Item {
    std::uint32_t unit = 0;
    std::uint32_t units = 0;
  };
  // Fills `found` with the blocks that start in [*from, end), and returns their number. Sets *from
  // to where the caller goes on, which is `end` or more if there is nothing further. It may return
  // 0 before that.
  std::size_t blocks_in(std::uint32_t* from, std::uint32_t end, std::span<Item> found) const;
  // The block or free run in which this unit lies.
  Item item_of(std::uint32_t unit) const;

  // Units of the longest free run, or up to 3 % less. Relaxed, as fit().
  std::uint32_t longest_free() const;

  // Checks how the items lie. Returns the violation (EXTENT-1 to EXTENT-3), or "", and the number
  // of blocks. Holds the lock throughout: for checks only.
  struct Tiling {
    std::string violation;
    std::uint64_t blocks = 0;
  };
  Tiling check() const;
  // Units of the block that starts here, or 0. For checks only.
  std::uint32_t block_at(std::uint32_t unit) const;

  // Relaxed snapshot: how closely allocate() could fit this length. 0 is best; kNoFit: no run is
  // long enough.
  static constexpr std::uint32_t kNoFit = kBins;
  std::uint32_t fit(std::uint32_t units) const;

  static std::uint32_t bin_of(std::uint32_t units);

 private:
  static std::uint32_t number_of(std::uint32_t unit) { return unit / kPageUnits + 1; }
  static bool test(const std::array<std::uint64_t, 2>& bits, std::uint32_t unit) {
    return (bits[unit / 64 % 2] >> (unit % 64) & 1U) != 0;
  }
  static constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();
  static std::uint32_t length_in(const Page& page, std::uint32_t unit);
  bool is_closed(std::uint32_t unit) const RKV_REQUIRES(mutex_) {
    return unit >= closed_begin_ && unit < closed_end_;
  }
  Page& page_of(std::uint32_t unit) RKV_REQUIRES(mutex_) { return pages_[number_of(unit)]; }
  void set_item(std::uint32_t unit, std::uint32_t units, bool free) RKV_REQUIRES(mutex_);
  void clear_item(std::uint32_t unit) RKV_REQUIRES(mutex_);
  std::uint32_t item_before(std::uint32_t unit) const RKV_REQUIRES(mutex_);
  std::uint32_t item_at(std::uint32_t unit) const RKV_REQUIRES(mutex_);
  std::uint32_t find_page(std::uint32_t units) const RKV_REQUIRES(mutex_);
  std::uint32_t first_used_bin(std::uint32_t from) const;
  std::uint32_t best_run_in(std::uint32_t number, std::uint32_t units) const RKV_REQUIRES(mutex_);
  void relist(std::uint32_t number) RKV_REQUIRES(mutex_);
  void link(std::uint32_t number, std::uint32_t longest) RKV_REQUIRES(mutex_);
  void unlink(std::uint32_t number) RKV_REQUIRES(mutex_);
  void report_free() RKV_REQUIRES(mutex_);
  std::string check_item(std::uint32_t unit, std::uint32_t units) const RKV_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::uint32_t units_ RKV_GUARDED_BY(mutex_) = 0;
  std::uint32_t closed_begin_ RKV_GUARDED_BY(mutex_) = kNowhere;
  std::uint32_t closed_end_ RKV_GUARDED_BY(mutex_) = kNowhere;
  Page* pages_ RKV_GUARDED_BY(mutex_) = nullptr;
  Bins* bins_ = nullptr;
  // Not yet added to free_units_; wraps below 0.
  std::uint64_t free_change_ RKV_GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t>* free_units_ = nullptr;
};

}  // namespace rkv::server
