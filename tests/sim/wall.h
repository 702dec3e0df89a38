// The wall clock of the simulated machine: set ahead and back while a server runs.
//
// What is promised (server/README.md): a clock that is ahead for less than a minute removes no key,
// one that is set back lets keys live as much longer, and one that has stood ahead for a minute is
// believed. So the steps are such that a server can tell them apart: ahead by hours or ten seconds
// and soon undone, back by any amount for good, and at last ahead for good.
//
// Thread safety: none.
#pragma once

#include <cstdint>

#include "rdma/sim/scheduler.h"

namespace rkv::sim {

class Wall {
 public:
  explicit Wall(const rdma::sim::Scheduler& scheduler) : scheduler_(scheduler) {}

  std::int64_t unix_ms() const { return kSomeUnixMs + ahead_ms_ + scheduler_.now() / kNanosPerMs; }
  void set_by(std::int64_t ms) {
    ahead_ms_ += ms;
    ++steps_;
    set_back_ms_ += ms < 0 ? -ms : 0;
  }
  // Ends a step ahead. `believed`: by a server that may have started meanwhile, for which it is a
  // step back.
  void undo(std::int64_t ms, bool believed) {
    ahead_ms_ -= ms;
    ++steps_;
    set_back_ms_ += believed ? ms : 0;
  }
  std::uint64_t steps() const { return steps_; }
  // How much longer a key may live by all of them.
  Nanos set_back() const { return set_back_ms_ * kNanosPerMs; }

 private:
  static constexpr std::int64_t kSomeUnixMs = 1'700'000'000'000;

  const rdma::sim::Scheduler& scheduler_;
  std::int64_t ahead_ms_ = 0;
  std::int64_t set_back_ms_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace rkv::sim
