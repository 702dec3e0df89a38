// StretchClearer: takes all records out of one stretch of an extent, so that its units become one
// free run. It looks at no other record: each block there says which key's record it may be, and
// the index says whether it is.
//
// Invariants:
//  STRETCH-1  A record is dropped or moved only under its pair's lock, and only if its key's slot
//      leads to that block. What the block says without the lock is a hint: its bytes may be of an
//      old record, of one that is being written, or of a value on its way in.
//  STRETCH-2  Between the first record that goes and the last, nobody else gets what became free:
//      the stretch is closed (EXTENT-5), and its blocks are released at once.
//
// Thread safety: one thread. records_visited(): any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "common/layout.h"
#include "server/memory/record_allocator.h"
#include "server/store/record_table.h"

namespace rkv::server {

// Units of a data extent, by the allocator's number.
struct Stretch {
  std::uint32_t number = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

class StretchClearer {
 public:
  // Moves a record to another block and publishes it there. Under the lock of its pair.
  using Move = std::function<void(const Target& at, Location to, std::uint64_t units)>;
  // `move`: empty if the records are dropped. `table` must outlive the object.
  StretchClearer(RecordTable& table, Move move) : table_(table), move_(std::move(move)) {}

  bool drops() const { return !move_; }
  // The cost, per unit, of clearing the stretch. If records are dropped: the uses, 0 to 3, of a few
  // dozen of them. If they are moved: the part of the units that must be moved.
  double cost_of(const Stretch& stretch);
  // The end of the first block of the stretch that is not worth moving for a block of `units`: a
  // record that is not moved, or that is at least half as long. 0: there is none, or records are
  // dropped.
  std::uint32_t end_of_long_block(const Stretch& stretch, std::uint64_t units);
  enum class Obstacle : std::uint8_t {
    kNone,
    kPasses,  // what lies there is on its way in
    kStays,   // a record that may not go
  };
  // `pause` is called now and then, while no lock is held; see clear().
  Obstacle look_for_obstacle(const Stretch& stretch, const std::function<void()>& pause);
  // Clears the stretch, and allocates blocks of so many units there. Fills `blocks`, and returns
  // how many there are. 0: an obstacle came meanwhile, or a record found no other place. Sets
  // *passes if it is only that somebody still writes a block there, or has not freed it yet.
  std::size_t clear(const Stretch& stretch, std::uint64_t units, std::span<Location> blocks,
                    const std::function<void()>& pause, bool* passes);

  std::uint64_t gone() const { return gone_; }  // dropped or moved, since the start
  std::uint64_t records_visited() const { return visited_.load(std::memory_order_relaxed); }

 private:
  // Calls visit(at) under the lock of its pair if a record lies in the block. Returns whether.
  template <class Visit>
  bool with_record(Location block, std::uint64_t units, Visit visit);
  template <class Visit>
  bool for_each_block(const Stretch& stretch, const std::function<void()>& pause, Visit visit);
  Bytes key_in(Location block, std::uint64_t units);
  bool may_go(const RecordFields& record) const;
  bool take_out(const Stretch& stretch, const std::function<void()>& pause);
  bool take_out(Location block, std::uint64_t units);
  Location block_at(const Stretch& stretch, const ExtentSpace::Item& item) const {
    return Location::of(table_.blocks().id_of(stretch.number), item.unit);
  }

  RecordTable& table_;
  const Move move_;
  std::uint64_t gone_ = 0;
  std::atomic<std::uint64_t> visited_{0};
  alignas(8) std::array<std::byte, kMaxKeyBytes> key_;
};

}  // namespace rkv::server
