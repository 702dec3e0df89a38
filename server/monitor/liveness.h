// Detects threads that are stuck. Each thread counts the turns of its loop; a thread whose count
// has not changed for kStuckAfter is stuck. An idle worker takes a turn once a second
// (Worker::run).
//
// Thread safety: one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/clock.h"

namespace rkv::server {

class Liveness {
 public:
  // Ten times a worker's longest sleep.
  static constexpr Nanos kStuckAfter = 10 * kNanosPerSecond;

  // Records the turn counts of all threads, always in the same order.
  void look(Nanos now, const std::vector<std::uint64_t>& turns) {
    seen_.resize(turns.size(), {.turns = ~std::uint64_t{0}, .since = now});
    for (std::size_t i = 0; i < turns.size(); ++i) {
      if (seen_[i].turns != turns[i]) seen_[i] = {.turns = turns[i], .since = now};
    }
    looked_ = now;
  }
  // Index of the first stuck thread. Judges as of the last look(); see looked_at().
  std::optional<std::size_t> stuck() const {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (looked_ - seen_[i].since >= kStuckAfter) return i;
    }
    return std::nullopt;
  }
  Nanos looked_at() const { return looked_; }

 private:
  struct Seen {
    std::uint64_t turns;
    Nanos since;
  };
  std::vector<Seen> seen_;
  Nanos looked_ = 0;
};

}  // namespace rkv::server
