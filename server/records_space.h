// ExtentSpace: which units of one data extent hold blocks. Best fit among the runs of free units;
// neighbouring free runs join at once. The lower floor of the RecordAllocator.
//
// Invariants:
//  E1  Blocks and free runs ("items") tile the extent: each begins where the one before it ends.
//  E2  No two free runs are neighbours.
//  E3  Every page in which free runs start is listed once, by the longest of them.
//  E4  Two words of the book-keeping are read without the lock, by fit() alone: Bins::used and
//      Bins::used_words. What it makes of them is a hint; allocate() looks again under the lock.
//      All else is read and written under the lock only. In particular the bits around a block say
//      its length only then: allocate() and release() clear a neighbour's start and set it again,
//      and in between the block seems to reach to the item after that. So who owns a block keeps
//      its length, and release() compares it with the bits.
//
// Book-keeping lies outside the extents: clients may still be READing a freed block, and nothing
// but records is ever written there. 56 bytes per page of 4 KiB: 1.4 % of the data.
//
// Thread safety: any thread; one lock, innermost, held for some 100 ns whatever the sizes. fit()
// takes none.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "common/layout.h"

namespace rkv::server {

inline constexpr std::uint32_t kPageUnits = 128;  // 4 KiB

class ExtentSpace {
 public:
  // Book-keeping of a page.
  struct Page {
    std::array<std::uint64_t, 2> starts{};  // bit i: an item starts at unit i
    std::array<std::uint64_t, 2> free{};    // bit i: and it is a free run
    std::uint32_t last_units = 0;           // length of the last item that starts here
    std::uint32_t entered_from = 0;  // first unit of the item of earlier pages that ends here
    std::uint32_t longest = 0;       // of the free runs that start here; 0: not listed
    std::uint32_t next = 0;          // in the list of the bin of `longest`; 0: none
    std::uint32_t previous = 0;
  };

  // Free runs by length: each length up to a page has a bin of its own, then 32 to a doubling.
  static constexpr std::uint32_t kBinsPerDoubling = 32;
  static constexpr std::uint32_t kBins = kPageUnits + 18 * kBinsPerDoubling;
  static constexpr std::uint32_t kBinWords = kBins / 64;
  static_assert(kBins % 64 == 0);
  struct Bins {
    std::array<std::uint32_t, kBins> first{};     // page, or 0
    std::array<std::uint64_t, kBinWords> used{};  // bit: the bin is not empty
    std::uint64_t used_words = 0;                 // bit: the word of `used` is not 0
  };

  // `pages`: zeroed, one more than the extent has, for numbers start at 1. `bins`: zeroed.
  // `free_units`, of all extents together, is kept up to date: units in free runs of a page or
  // more. All outlive the object. Once, before anything else.
  void open(std::uint32_t units, Page* pages, Bins* bins, std::atomic<std::uint64_t>* free_units);

  struct Blocks {
    std::uint32_t first = 0;
    std::uint32_t count = 0;  // 0: no free run is long enough
  };
  // A block of so many units, from a run that fits it best; or up to `most` of them, one after the
  // other, if that run has more than a page.
  Blocks allocate(std::uint32_t units, std::uint32_t most);
  // REQUIRES: a block that allocate() gave, and all of it: anything else ends the process.
  void release(std::uint32_t unit, std::uint32_t units);

  // How the items lie: what is wrong (E1 to E3), or nothing, and how many blocks there are. Holds
  // the lock for all of it: for checks.
  struct Tiling {
    std::string violation;
    std::uint64_t blocks = 0;
  };
  Tiling check() const;
  // Units of the block that starts here, or 0. For checks.
  std::uint32_t block_at(std::uint32_t unit) const;

  // Relaxed snapshot: how well allocate() would fit this length, 0 being best; kNoFit: not at all.
  static constexpr std::uint32_t kNoFit = kBins;
  std::uint32_t fit(std::uint32_t units) const;

  static std::uint32_t bin_of(std::uint32_t units);

 private:
  Page& page_of(std::uint32_t unit) { return pages_[number_of(unit)]; }
  static std::uint32_t number_of(std::uint32_t unit) { return unit / kPageUnits + 1; }
  static bool test(const std::array<std::uint64_t, 2>& bits, std::uint32_t unit) {
    return (bits[unit / 64 % 2] >> (unit % 64) & 1U) != 0;
  }
  static std::uint32_t length_in(const Page& page, std::uint32_t unit);
  void set_item(std::uint32_t unit, std::uint32_t units, bool free);
  void clear_item(std::uint32_t unit);
  std::uint32_t item_before(std::uint32_t unit) const;
  std::uint32_t find_page(std::uint32_t units) const;
  std::uint32_t first_used_bin(std::uint32_t from) const;
  std::uint32_t best_run_in(std::uint32_t number, std::uint32_t units) const;
  void relist(std::uint32_t number);
  void link(std::uint32_t number, std::uint32_t longest);
  void unlink(std::uint32_t number);
  void report_free();
  std::string check_item(std::uint32_t unit, std::uint32_t units) const;

  mutable std::mutex mutex_;
  std::uint32_t units_ = 0;
  Page* pages_ = nullptr;
  Bins* bins_ = nullptr;
  std::uint64_t free_change_ = 0;  // what free_units_ does not know yet, wrapping below 0
  std::atomic<std::uint64_t>* free_units_ = nullptr;
};

}  // namespace rkv::server
