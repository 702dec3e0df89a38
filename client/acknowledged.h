// Which writes a server has acknowledged to this client and may lose with its process.
//
// Invariants:
//  U1  The highest version acknowledged in an epoch is held, and stands for all below it. It is
//      dropped when it was acknowledged as synced, or when a sync mark of that epoch covers it.
//  U2  When the client connects to another epoch with a version held, its writes may be lost. A
//      call that promises something about everything acknowledged (flush, backup) fails once for
//      it, before its request is sent: the new server knows nothing of those writes.
//
// A stop in good order saves everything, but a successor does not say how its predecessor ended.
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
  // A one-sided counter's: no version tells it, no mark covers it.
  void change_of_cell(std::uint64_t epoch) { write(epoch, {~std::uint64_t{0}}); }
  // All is on disk up to this one.
  void synced(std::uint64_t epoch, Version mark) {
    if (epoch == epoch_ && held_ <= mark) held_ = {};
  }
  void flushed() { held_ = {}; }
  void connected(std::uint64_t epoch) {
    if (held_.bits == 0 || epoch == epoch_) return;
    held_ = {};
    lost_ = true;
  }
  // Whether something may be lost; says so once.
  bool take_lost() { return std::exchange(lost_, false); }

 private:
  std::uint64_t epoch_ = 0;
  Version held_{};
  bool lost_ = false;
};

}  // namespace rkv::client
