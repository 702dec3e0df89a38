// RecordAllocator: blocks for records, 32 bytes to kMaxRecordBytes, in the data extents.
//
// Small blocks (up to 32 KiB) come in 64 size classes, eight to a doubling, so that at most 1/8 of
// a block is waste; spans of pages are cut into blocks of one class and go back to the pages when
// their last block is freed, so that a changing mix of sizes strands no memory for good. Larger
// blocks are runs of whole pages, up to 16 MiB and a header.
//
// Freed blocks wait for `min_age` before they are handed out again (blocks of large values
// kHugeAgeFactor times as long, since a READ of them takes longer), so that a slow reader of an old
// value sees that value superseded rather than torn by the next: liveness of readers only, no
// correctness rests on it. Under pressure it is cut short: when memory is exhausted, or when more
// than kMaxWaiting blocks of a class wait.
//
// Thread safety: all operations from any thread; one lock per size class, held for some 20 ns.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "common/clock.h"
#include "server/records_pages.h"

namespace rkv::server {

inline constexpr std::uint32_t kSmallClasses = 64;
inline constexpr std::uint64_t kMaxSmallUnits = 1024;

// 1..16 units each have a class of their own, then eight classes to a doubling.
std::uint32_t size_class_of(std::uint64_t units);
std::uint32_t size_class_units(std::uint32_t size_class);

class RecordAllocator {
 public:
  static constexpr Nanos kDefaultMinAge = 5 * kNanosPerMs;
  static constexpr Nanos kHugeAgeFactor = 20;
  static constexpr std::uint32_t kMaxWaiting = 8192;  // of each class; 128 KiB of book-keeping

  struct Usage {
    std::uint64_t capacity_bytes = 0;
    std::uint64_t used_bytes = 0;     // blocks that hold records, rounded up to their class
    std::uint64_t waiting_bytes = 0;  // freed, too young to be used again
  };

  // Knows the data extents that there are. `clock` must outlive the allocator.
  RecordAllocator(const StoreMemory& memory, const Clock& clock, Nanos min_age = kDefaultMinAge);
  ~RecordAllocator();

  // A block of at least this many units, its content arbitrary. Nothing: no room, not even among
  // the blocks that wait.
  std::optional<Location> allocate(std::uint64_t units);
  // REQUIRES: allocated, not yet released.
  void release(Location block);

  // More blocks. One thread.
  void add_extent(const StoreMemory::Extent& extent) { pages_.add_extent(extent); }
  // Relaxed: for the decision when to make more.
  std::uint64_t free_bytes() const { return pages_.free_pages() * kPageUnits * kUnitBytes; }

  Usage usage() const;

 private:
  struct SizeClass;
  SizeClass& class_at(Location block);
  std::optional<Location> take(SizeClass& size_class, std::uint64_t units);
  void put_back(SizeClass& size_class, Location block);
  void put_back_small(SizeClass& size_class, Location block);
  void link(SizeClass& size_class, std::uint32_t span);
  void unlink(SizeClass& size_class, std::uint32_t span);
  void retire(SizeClass& size_class, Nanos now, std::uint32_t at_most);
  void retire_everything();

  const Clock& clock_;
  Pages pages_;
  std::unique_ptr<SizeClass[]> classes_;  // kSmallClasses, and two of runs of pages
};

}  // namespace rkv::server
