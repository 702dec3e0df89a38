// Pages: runs of 4 KiB pages of the data extents, handed out and taken back; neighbouring free runs
// join. The lower floor of the RecordAllocator.
//
// Book-keeping lies outside the extents: clients may still be READing a freed block, and nothing
// but records is ever written there. 40 bytes a page: 1 % of the data.
//
// Thread safety: allocate_run and release_run from any thread (one lock, innermost); add_extent one
// thread. The fields of a Page say who owns them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "common/layout.h"
#include "server/memory.h"

namespace rkv::server {

inline constexpr std::uint32_t kPageUnits = 128;  // 4 KiB
inline constexpr std::uint32_t kNoPage = 0;       // page 0 is a fence

struct Page {
  // Of the first page of a span of small blocks, guarded by its size class's lock.
  std::array<std::uint64_t, 2> free_blocks{};  // bit i: block i is free
  std::uint32_t free_count = 0;
  std::uint32_t size_class = 0;
  // In the list of free runs of one length (the pages' lock) or of spans with free blocks (the
  // class's lock), never in both.
  std::uint32_t next = kNoPage;
  std::uint32_t previous = kNoPage;
  // Length of the run that this page starts or ends. The pages' lock.
  std::uint32_t run_pages = 0;
  std::uint16_t extent = 0;  // constant
  bool free = false;         // first and last page of a free run. The pages' lock
  // How far the span's first page is away; constant while in use. Of longer runs, of the first
  // page.
  std::uint8_t span_page = 0;
};

class Pages {
 public:
  // Book-keeping for up to `max_bytes` of data extents, touched as far as there are pages.
  explicit Pages(std::size_t max_bytes);
  void add_extent(const StoreMemory::Extent& extent);

  // The first page of a run of 1 or more pages, or kNoPage. A run is cut from one extent.
  std::uint32_t allocate_run(std::uint32_t pages);
  void release_run(std::uint32_t first);

  Page& operator[](std::uint32_t page) { return pages_[page]; }
  // Start of a page; page of a location.
  Location location(std::uint32_t page) const {
    const Page& p = pages_[page];
    return Location::of(p.extent, (page - bases_[p.extent]) * kPageUnits);
  }
  std::uint32_t page_of(Location location) const {
    return bases_[location.extent()] + location.unit() / kPageUnits;
  }
  // Relaxed snapshots.
  std::uint64_t page_count() const { return page_count_.load(std::memory_order_relaxed); }
  std::uint64_t free_pages() const { return free_pages_.load(std::memory_order_relaxed); }

  // Of a span: its pages know how far its first one is.
  static constexpr std::uint32_t kMaxSpanPages = 64;

 private:
  void link(std::uint32_t first, std::uint32_t pages);
  void unlink(std::uint32_t first);
  static std::uint32_t bin(std::uint32_t pages);
  std::uint32_t find_run(std::uint32_t pages) const;
  std::uint32_t first_used_bin(std::uint32_t from) const;

  struct Free {
    void operator()(Page* pages) const { std::free(pages); }
  };
  std::size_t room_;                                // of pages_
  std::unique_ptr<Page[], Free> pages_;             // extent after extent, with fences between them
  std::array<std::uint32_t, kMaxExtents> bases_{};  // number of each extent's first page
  std::uint32_t end_ = 1;                           // the next extent's; page 0 is a fence
  std::atomic<std::uint64_t> page_count_{0};
  std::atomic<std::uint64_t> free_pages_{0};
  std::mutex mutex_;  // guards the lists and what Page says
  // Free runs by length: bin i holds runs of i + 1 pages up to kExactBins, then each holds a
  // doubling: longer than kExactBins, than twice that, and so on.
  static constexpr std::uint32_t kExactBins = 64;
  static constexpr std::uint32_t kBins = kExactBins + 12;  // an extent has 2^17 pages at most
  std::array<std::uint32_t, kBins> bins_{};
  std::array<std::uint64_t, 2> bins_used_{};  // bit i: bin i is not empty
};

}  // namespace rkv::server
