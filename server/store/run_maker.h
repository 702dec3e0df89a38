// RunMaker: adjacent free units for a long record of a cache. The records that the evictor drops
// leave holes all over the extents, and none of them may be long enough, however many records go.
// So all records of one stretch are dropped, the least used one of a few, and the stretch is kept
// for the write that asked.
//
// Invariants:
//  RUN-1  The run kept is an allocated block that no slot leads to. take(), or give_up(), passes it
//      on.
//
// Thread safety: make() and give_up(): one thread. ask() and take(): any thread, also under a
// pair's lock.
#pragma once

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
  RunMaker(RecordTable& table, const Clock& clock);

  // Says that an operation found no block of so many units. Ignored below kLeastUnits: records of
  // such sizes leave holes that fit.
  static constexpr std::uint64_t kLeastUnits = 128;
  void ask(std::uint64_t units);
  // Returns a block of so many units from the run that is kept, if that is long enough.
  std::optional<Location> take(std::uint64_t units);

  // Allocates the run that was asked for, and drops all records of a stretch if there is none.
  // Gives up after a few stretches, since what is in them may not go, or may be on its way in; the
  // next call tries others. Returns whether anything was dropped or is kept.
  bool make();
  // Frees a run that nobody has come for.
  void give_up();

 private:
  struct Stretch {
    std::uint32_t extent = 0;
    std::uint64_t begin = 0;  // units
    std::uint64_t end = 0;
  };
  struct Run {
    Location at;
    std::uint64_t units = 0;
    Nanos since = 0;
  };
  bool keep(std::uint64_t units);
  std::optional<Stretch> next_stretch(std::uint64_t units);
  std::optional<Stretch> least_used_stretch(std::uint64_t units);
  std::size_t clear(const Stretch& stretch);
  bool is_in(Slot slot, const Stretch& stretch) const;
  void free(const std::optional<Run>& run);

  static constexpr std::size_t kMostGone = 65'536;
  RecordTable& table_;
  const Clock& clock_;
  std::atomic<std::uint64_t> asked_{0};
  Mutex run_mutex_;  // innermost but for the allocator's
  std::optional<Run> run_ RKV_GUARDED_BY(run_mutex_);
  // Of the thread that makes runs: where the last stretch ended, and the slots of the records that
  // it dropped. These are released together, so that nobody has waited for them long enough.
  std::uint32_t extent_ = 0;
  std::uint64_t unit_ = 0;
  std::unique_ptr<Slot[]> gone_;
};

}  // namespace rkv::server
