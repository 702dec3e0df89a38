// RunMaker: adjacent free units for a long record of a cache. The records that the evictor drops
// leave holes all over the extents, and none of them may be long enough, however many records go.
// So all records of one stretch are dropped, the least used one of a few, and what becomes free is
// kept for the writes that asked.
//
// Invariants:
//  RUN-1  The blocks kept are allocated, and no slot leads to them. take(), or give_up(), passes
//      each of them on.
//
// Thread safety: make() and give_up(): one thread. ask(), take() and is_hopeless(): any thread,
// also under a pair's lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "common/clock.h"
#include "common/mutex.h"
#include "server/store/record_table.h"

namespace rkv::server {

class RunMaker {
 public:
  // Both arguments must outlive the object.
  RunMaker(RecordTable& table, const Clock& clock) : table_(table), clock_(clock) {}

  // Says that an operation found no block of so many units. Ignored below kLeastUnits: records so
  // short are of few sizes, and leave holes for each other.
  static constexpr std::uint64_t kLeastUnits = 17;
  void ask(std::uint64_t units);
  // The longest that was asked for since the last make(); 0: none.
  std::uint64_t asked() const { return asked_.load(std::memory_order_relaxed); }
  // Returns a block of so many units, if such blocks are kept, or somewhat longer ones.
  std::optional<Location> take(std::uint64_t units);
  // Whether a block of so many units was sought everywhere a moment ago, and records that may not
  // go lie in each stretch.
  bool is_hopeless(std::uint64_t units) const;

  // Keeps blocks of what was asked for. If no hole is long enough, drops all records of a stretch.
  // Tries a few stretches, since values on their way in may lie there; the next call tries others.
  // Returns whether anything was dropped or is kept.
  bool make();
  // Frees blocks that nobody has come for.
  void give_up();

 private:
  struct Stretch {
    std::uint32_t extent = 0;
    std::uint64_t begin = 0;  // units
    std::uint64_t end = 0;
    std::uint64_t uses = 0;  // of all units
  };
  static constexpr std::size_t kMostKept = 32;
  struct Kept {
    std::array<Location, kMostKept> blocks{};
    std::size_t count = 0;
    std::uint64_t units = 0;  // of each
    Nanos since = 0;
  };
  bool keep(std::uint64_t units, std::size_t most);
  std::optional<Stretch> next_stretch(std::uint64_t units);
  std::optional<Stretch> least_used_stretch(std::uint64_t units);
  std::size_t clear(const Stretch& stretch);
  bool is_in(Slot slot, std::uint64_t units, const Stretch& stretch) const;
  std::uint64_t capacity_units() const;

  RecordTable& table_;
  const Clock& clock_;
  std::atomic<std::uint64_t> asked_{0};
  std::atomic<std::uint64_t> hopeless_units_{~std::uint64_t{0}};  // so many and more
  std::atomic<Nanos> hopeless_until_{0};
  Mutex kept_mutex_;
  Kept kept_ RKV_GUARDED_BY(kept_mutex_);
  // Of the thread that makes runs: where the last stretch ended; units of the stretches that were
  // useless, one after the other; and the slots of the records that it dropped from one. Their
  // blocks are released together at the end, so that others do not take the first meanwhile.
  std::uint32_t extent_ = 0;
  std::uint64_t unit_ = 0;
  std::uint64_t useless_units_ = 0;
  std::unique_ptr<Slot[]> gone_;
};

}  // namespace rkv::server
