// Writes that were acknowledged over a connection of a SharedClient and are not known to be on disk
// (SHARED-2). Acknowledged does the same for one thread. Here writes are acknowledged beside a
// flush, so each write is counted.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>

#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::client {

class HeldWrites {
 public:
  // The state at some moment.
  struct State {
    std::uint64_t notes = 0;  // number of notes in all epochs
    std::uint64_t epoch = 0;
    Version version{};          // the newest held version of the epoch; 0: none
    std::uint64_t cell_at = 0;  // the newest change of a counter in a cell, by `notes`; 0: none
    std::uint64_t lost_at = 0;  // when held writes turned out to be of an earlier epoch; 0: never
    bool holds() const { return version.bits != 0 || cell_at != 0; }
  };
  // Notes an acknowledged write. `version` 0: a counter in a cell, which no mark covers. `mark`:
  // all versions up to it are on disk in the epoch.
  void note(std::uint64_t epoch, Version version, Version mark);
  State state();
  // A flush that began at `before` was answered in `epoch`: all versions up to `version` are on
  // disk. Returns true, once for each loss, if a write that was acknowledged before the flush may
  // be lost.
  bool flushed(const State& before, std::uint64_t epoch, Version version);

 private:
  Mutex mutex_;
  State now_ RKV_GUARDED_BY(mutex_){};
};

}  // namespace rkv::client
