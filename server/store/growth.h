// Growth: space for records and keys. It allocates blocks, and says when segments are split, when
// memory is added, when the evictor runs, and which error an operation without space returns.
//
// Invariants:
//  GROWTH-1  A segment is split only under all its pair locks, and only by a thread that holds no
//      other.
//  GROWTH-2  The growth callback runs at most once until grow() returns without an error.
//  GROWTH-3  Keys that were chosen to collide do not make the index grow to its limit: a full pair
//      asks for memory only while its segment has enough stashed keys to be split.
//
// Thread safety: grow(): one thread. on_low_memory(): before the first operation. All others: any
// thread. split_if_crowded() takes locks; the others take none but the allocator's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "rkv/result.h"
#include "server/store/evictor.h"
#include "server/store/record_table.h"

namespace rkv::server {

class Growth {
 public:
  // Both arguments must outlive the object.
  Growth(RecordTable& table, Evictor& evictor);

  // Whether an extent should be added: less than half an extent is unused, or an operation found no
  // space, and the limit is not reached.
  bool wants_memory() const { return is_low(ExtentEntry::kIndex) || is_low(ExtentEntry::kData); }
  // Adds extents while wants_memory(). Blocks while the kernel provides their pages. Operations do
  // not wait for that: they use the memory there is, and return kBusy without it. Returns whether
  // an extent was added. Errors come from the memory's source; the next call retries.
  Result<bool> grow();
  // Sets a callback for wants_memory() becoming true. It runs in any thread, inside an operation
  // (GROWTH-2).
  void on_low_memory(std::function<void()> call) { call_ = std::move(call); }

  // ---- for the operations on keys

  // Allocates a block. kTooLarge: no block of this store is long enough. kBusy, kOutOfMemory.
  Result<Location> allocate(std::uint64_t units);
  // Returns the error of an operation for whose key the index has no vacancy.
  std::unexpected<Error> no_vacancy(GroupPlace home, KeyHash hash);
  // Splits the segment of this hash if too many of its keys are stashed and an unused segment
  // exists. Otherwise its keys stay in the stash until another key is stashed, or memory is added.
  // REQUIRES: no lock is held.
  void split_if_crowded(KeyHash hash);

 private:
  struct Need {
    std::atomic<bool> may_grow{false};  // the limit is not reached; set by take_in()
    std::atomic<bool> starved{false};   // an operation found no space since the last extent
  };
  bool is_low(ExtentEntry::Kind kind) const;
  void call_for_memory_if_low();
  std::unexpected<Error> no_room(ExtentEntry::Kind kind, std::uint64_t units);
  std::unexpected<Error> pair_is_crowded(KeyHash hash);
  void take_in(const StoreMemory::Extent& extent);
  void split_all_crowded();
  void update_growth_limits();
  void update_evictor();

  StoreMemory& memory_;
  Index& index_;
  RecordAllocator& blocks_;
  const PairLocks& locks_;
  Evictor& evictor_;
  // The growth callback runs when less than half an extent is unused.
  const std::uint32_t low_segments_;
  const std::size_t low_data_bytes_;
  std::function<void()> call_;
  std::atomic<bool> called_{false};
  Need index_need_;
  Need data_need_;
  std::atomic<bool> grow_failed_{false};
};

}  // namespace rkv::server
