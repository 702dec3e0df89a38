// What was acknowledged over a connection of a SharedClient and is not known to be on disk
// (SHARED-2). Acknowledged does the same for one thread: here writes are acknowledged beside a
// flush, so that each is counted.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>

#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::client {

class HeldWrites {
 public:
  // At some moment.
  struct State {
    std::uint64_t notes = 0;  // of all epochs
    std::uint64_t epoch = 0;
    Version version{};          // the newest of the epoch; 0: none
    std::uint64_t cell_at = 0;  // the newest change of a counter in a cell, by `notes`; 0: none
    std::uint64_t lost_at = 0;  // when what was held turned out to be of an earlier epoch; 0: never
    bool holds() const { return version.bits != 0 || cell_at != 0; }
  };
  // `version` 0: a counter in a cell, which no mark covers. `mark`: what is on disk in the epoch.
  void note(std::uint64_t epoch, Version version, Version mark);
  State state();
  // A flush that began at `before` was answered in `epoch`: all up to `version` is on disk. Returns
  // true, once for each loss, if a write that was acknowledged before it may be lost.
  bool flushed(const State& before, std::uint64_t epoch, Version version);

 private:
  Mutex mutex_;
  State now_ RKV_GUARDED_BY(mutex_){};
};

}  // namespace rkv::client
