// RecordAllocator: blocks for records, 32 bytes to kMaxRecordBytes, in the data extents.
//
// A block has exactly the units that were asked for and lies in the free run that fits it best,
// wherever that begins; free neighbours join (ExtentSpace). So nothing is lost to rounding, to
// tails of slabs, or to slabs cut for other sizes, and memory follows a changing mix of sizes.
// Small blocks are cut several at a time while there are long runs.
//
// Freed blocks wait for `min_age` before they are handed out again (blocks of large values
// kHugeAgeFactor times as long, since a READ of them takes longer), so that a slow reader of an old
// value sees that value superseded rather than torn by the next: liveness of readers only, no
// correctness rests on it. Under pressure it is cut short: when memory is exhausted, or when more
// than kMaxWaiting blocks of a class wait.
//
// Thread safety: all operations from any thread. One lock per class of sizes, held for some 20 ns,
// and one per extent, for what the class has neither cut in advance nor old enough to be used
// again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "server/memory.h"
#include "server/records_space.h"

namespace rkv::server {

// Sizes that share a lock and a queue of waiting blocks: 1..16 units each have their own, then
// eight to a doubling up to the longest record that is not of a large value.
std::uint32_t size_class_of(std::uint64_t units);

class RecordAllocator {
 public:
  static constexpr Nanos kDefaultMinAge = 5 * kNanosPerMs;
  static constexpr Nanos kHugeAgeFactor = 20;
  static constexpr std::uint32_t kMaxWaiting = 8192;  // of each class; 192 KiB of book-keeping

  struct Usage {
    std::uint64_t capacity_bytes = 0;
    std::uint64_t used_bytes = 0;     // blocks that hold records
    std::uint64_t waiting_bytes = 0;  // freed, too young to be used again
  };

  // Knows the data extents that there are. `clock` must outlive the allocator.
  RecordAllocator(const StoreMemory& memory, const Clock& clock, Nanos min_age = kDefaultMinAge);
  ~RecordAllocator();

  // A block of so many units, its content arbitrary. Nothing: no room, not even among the blocks
  // that wait.
  std::optional<Location> allocate(std::uint64_t units);
  // REQUIRES: allocated with so many units, not yet released. The owner says how many: E4.
  void release(Location block, std::uint64_t units);

  // More blocks. One thread.
  void add_extent(const StoreMemory::Extent& extent);
  // In free runs of a page or more. Relaxed: for the decision when to make more.
  std::uint64_t free_bytes() const {
    return free_units_.load(std::memory_order_relaxed) * kUnitBytes;
  }

  Usage usage() const;

  // That the blocks which records have are blocks that were allocated, each once, and that the
  // allocator counts these and no others. REQUIRES that nobody allocates or releases meanwhile.
  class Check {
   public:
    explicit Check(const RecordAllocator& records);
    // A record has this block. What is wrong, or nothing.
    std::string claim(Location block, std::uint64_t units);
    // When all of them have been claimed.
    std::string finish();

   private:
    const RecordAllocator& records_;
    std::vector<std::vector<bool>> claimed_;  // by extent and unit: a block starts here
    std::uint64_t units_ = 0;
  };

 private:
  struct SizeClass;
  struct Block {
    Location at;
    std::uint32_t units;
  };
  struct Extent {
    std::uint32_t id = 0;  // constant from add_extent() on
    ExtentSpace space;
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  ExtentSpace& space_of(Location block) { return extents_[numbers_[block.extent()]].space; }
  std::optional<Location> take_waiting(SizeClass& size_class, std::uint32_t units, Nanos now);
  std::optional<Location> take_ready(SizeClass& size_class, std::uint32_t units);
  std::optional<Location> take_free(SizeClass& size_class, std::uint32_t units);
  std::optional<Location> take_from(Extent& extent, SizeClass& size_class, std::uint32_t units);
  void keep_ready(SizeClass& size_class, Location first, std::uint32_t count, std::uint32_t units);
  void put_back(Block block) { put_back(block.at, 1, block.units); }
  void put_back(Location first, std::uint32_t count, std::uint32_t units);
  void put_back_everything();

  const Clock& clock_;
  std::unique_ptr<SizeClass[]> classes_;
  std::size_t max_extents_;
  std::unique_ptr<Extent[]> extents_;
  std::array<std::uint16_t, kMaxExtents> numbers_{};  // by extent id: which of extents_
  std::atomic<std::uint32_t> extent_count_{0};
  std::size_t max_pages_;
  std::size_t pages_used_ = 0;
  std::unique_ptr<ExtentSpace::Page[], Free> pages_;  // extent after extent
  std::unique_ptr<ExtentSpace::Bins[], Free> bins_;
  std::atomic<std::uint64_t> capacity_units_{0};
  std::atomic<std::uint64_t> free_units_{0};
};

}  // namespace rkv::server
