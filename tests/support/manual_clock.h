// ManualClock: a clock that only a test moves. Any thread may read it meanwhile.
#pragma once

#include <atomic>

#include "rkv/clock.h"

namespace rkv {

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_.load(std::memory_order_relaxed); }
  void advance(Nanos by) { now_.fetch_add(by, std::memory_order_relaxed); }

 private:
  std::atomic<Nanos> now_ = 1;
};

}  // namespace rkv
