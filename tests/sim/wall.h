// The wall clock of the simulated machine: it is set ahead and back while a server runs.
//
// The promise (server/MANUAL.md): a clock that is ahead for less than a minute removes no key; one
// that is set back lets keys live longer by that amount; one that has been ahead for a minute is
// believed. So a server can tell the steps apart: ahead by hours or ten seconds and soon undone,
// back by any amount for good, and at last ahead for good.
//
// Thread safety: none.
#pragma once

#include <cstdint>

#include "tests/sim/network/scheduler.h"

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
  // Ends a step ahead. `believed`: a server may have started meanwhile and believed the step; for
  // that server this is a step back.
  void undo(std::int64_t ms, bool believed) {
    ahead_ms_ -= ms;
    ++steps_;
    set_back_ms_ += believed ? ms : 0;
  }
  std::uint64_t steps() const { return steps_; }
  // How much longer a key may live because of all steps.
  Nanos set_back() const { return set_back_ms_ * kNanosPerMs; }

 private:
  static constexpr std::int64_t kSomeUnixMs = 1'700'000'000'000;

  const rdma::sim::Scheduler& scheduler_;
  std::int64_t ahead_ms_ = 0;
  std::int64_t set_back_ms_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace rkv::sim
