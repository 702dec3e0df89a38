// RecordAllocator: blocks for records, 32 bytes to kMaxRecordBytes, in the data extents.
//
// A block has exactly the units that were requested. It is cut from the free run that fits best,
// wherever that run begins; free neighbours merge (ExtentSpace). So no memory is lost to rounding,
// to tails of slabs or to slabs of other sizes, and memory follows a changing mix of sizes. Small
// blocks are cut several at a time while there are long runs.
//
// Freed blocks wait for `min_age` before they are reused. Blocks of large values wait
// kHugeAgeFactor times as long, because a READ of them takes longer. So a slow reader of an old
// value finds it superseded rather than overwritten. The wait serves readers' liveness only; no
// correctness depends on it. It is cut short when memory is exhausted, or when more than
// kMaxWaiting blocks of a class wait.
//
// Invariants:
//  SCRUB-1  In scrubbed memory (MemoryOptions::scrub) a byte of a data extent is zero unless it
//      belongs to a record, or to a block that an operation has allocated. release() writes the
//      zeros while the caller still owns the block. An operation releases what it has replaced
//      before it returns, so a READ that begins after the answer does not find it.
//
// Thread safety: all operations from any thread; add_extent() from one thread. There is one lock
// per size class, held for some 20 ns. There is one lock per extent, taken when the class has no
// block that was cut in advance or has waited long enough.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "server/memory/extent_space.h"
#include "server/memory/memory.h"

namespace rkv::server {

// Class of a size. The sizes of a class share a lock and a queue of waiting blocks. Each size from
// 1 to 16 units has a class. Then there are eight classes to a doubling, up to the longest record
// whose value is not large.
std::uint32_t size_class_of(std::uint64_t units);

class RecordAllocator {
 public:
  static constexpr Nanos kDefaultMinAge = 5 * kNanosPerMs;
  static constexpr Nanos kHugeAgeFactor = 20;
  static constexpr std::uint32_t kMaxWaiting = 8192;  // in each class; 192 KiB of bookkeeping

  struct Usage {
    std::uint64_t capacity_bytes = 0;
    std::uint64_t used_bytes = 0;     // blocks that hold records
    std::uint64_t waiting_bytes = 0;  // freed, too young to be reused
  };

  // Covers the data extents that `memory` has now. Both references must outlive the allocator.
  RecordAllocator(const StoreMemory& memory, const Clock& clock, Nanos min_age = kDefaultMinAge);
  ~RecordAllocator();

  // Returns a block of so many units, with arbitrary content; of scrubbed memory, with zeros.
  // nullopt: no free run is that long, waiting blocks included.
  std::optional<Location> allocate(std::uint64_t units);
  // REQUIRES: the block was allocated with this many units, and was not released yet. The owner
  // keeps the length of the block (EXTENT-4). In scrubbed memory it takes as long as writing the
  // block.
  void release(Location block, std::uint64_t units);
  // The same for a block in which nothing was written since allocate(): it is zero if it must be.
  void release_unwritten(Location block, std::uint64_t units);

  // Adds an extent to allocate from. One thread.
  void add_extent(const StoreMemory::Extent& extent);
  // Bytes in free runs of a page or more. Relaxed: it only decides when to add memory.
  std::uint64_t free_bytes() const {
    return free_units_.load(std::memory_order_relaxed) * kUnitBytes;
  }

  Usage usage() const;
  // The longest block that could be allocated now, or up to 3 % less. Freed blocks that wait do not
  // count. Relaxed.
  std::uint64_t longest_free_bytes() const;

  // ---- clearing a stretch of an extent, by one thread (RunMaker)

  // The data extents, numbered from 0.
  std::uint32_t extents() const { return extent_count_.load(std::memory_order_acquire); }
  std::uint32_t id_of(std::uint32_t number) const { return extents_[number].id; }
  std::uint32_t units_in(std::uint32_t number) const { return extents_[number].units; }
  // The closed range of an extent (EXTENT-5). Freed blocks go there only if they wait no longer:
  // put_back_everything(), release_at_once().
  ExtentSpace& space(std::uint32_t number) { return extents_[number].space; }
  // A block of the closed range. Fills `blocks`, and returns how many there are.
  std::size_t allocate_closed(std::uint32_t number, std::uint64_t units,
                              std::span<Location> blocks);
  // As release(), without the wait.
  void release_at_once(Location block, std::uint64_t units);
  // Ends the wait of all freed blocks, and gives up those that were cut ahead.
  void put_back_everything();

  // Checks that the blocks of records are allocated blocks, each claimed once, and that the
  // allocator counts these blocks and no others. Of scrubbed memory, that all other blocks are
  // zero (SCRUB-1). REQUIRES: no thread allocates or releases meanwhile.
  class Check {
   public:
    explicit Check(const RecordAllocator& records);
    // Claims the block of a record. Returns the violation, or "".
    std::string claim(Location block, std::uint64_t units);
    // Call it after all blocks were claimed. Returns the violation, or "".
    std::string finish();
    static bool is_zero(Bytes bytes);

   private:
    std::string check_extent(std::size_t number, std::uint64_t* blocks) const;

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
    std::uint32_t id = 0;  // it and `units` are constant from add_extent() on
    std::uint32_t units = 0;
    ExtentSpace space;
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  ExtentSpace& space_of(Location block) { return extents_[numbers_[block.extent()]].space; }
  std::optional<Location> take_waiting(SizeClass& size_class, std::uint32_t units, Nanos now);
  std::optional<Location> take_ready(SizeClass& size_class, std::uint32_t units);
  std::optional<Location> take_free(SizeClass& size_class, std::uint32_t units);
  std::optional<Location> take_from_any(SizeClass& size_class, std::uint32_t units);
  std::optional<Location> take_from(Extent& extent, SizeClass& size_class, std::uint32_t units);
  void keep_ready(SizeClass& size_class, Location first, std::uint32_t count, std::uint32_t units);
  void scrub(Location block, std::uint64_t units) const;
  void put_back(Block block) { put_back(block.at, 1, block.units); }
  void put_back(Location first, std::uint32_t count, std::uint32_t units);

  const StoreMemory& memory_;
  const Clock& clock_;
  const bool scrubs_;
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
