// Acknowledged: the writes that the server acknowledged to this client and may lose when its
// process ends.
//
// Invariants:
//  ACK-1  The highest version acknowledged in an epoch is held, and represents all versions below
//      it. It is dropped when it was acknowledged as synced, or when a sync mark of that epoch
//      covers it.
//  ACK-2  When the client connects to another epoch while it holds a version, its writes may be
//      lost. Calls that promise something about every acknowledged write (flush, backup) fail once
//      for that reason. They fail before their request is sent: the new server does not know those
//      writes.
//
// An orderly stop saves everything, but the next server does not say how its predecessor ended.
//
// Thread safety: a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/layout.h"

namespace rkv::client {

class Acknowledged {
 public:
  void write(std::uint64_t epoch, Version version) {
    epoch_ = epoch;
    held_ = std::max(held_, version);
  }
  // Records a change of a one-sided counter: it has no version of its own, and no mark covers it.
  void change_of_cell(std::uint64_t epoch) { write(epoch, {~std::uint64_t{0}}); }
  // Records that everything up to this version is on disk.
  void synced(std::uint64_t epoch, Version mark) {
    if (epoch == epoch_ && held_ <= mark) held_ = {};
  }
  void flushed() { held_ = {}; }
  void connected(std::uint64_t epoch) {
    if (held_.bits == 0 || epoch == epoch_) return;
    held_ = {};
    lost_ = true;
  }
  // Returns true, once, if a write may be lost.
  bool take_lost() { return std::exchange(lost_, false); }

 private:
  std::uint64_t epoch_ = 0;
  Version held_{};
  bool lost_ = false;
};

}  // namespace rkv::client
