// Includes rkv/clock.h and adds the clock of a replicated group and a clock for tests.
#pragma once

#include <ctime>

#include "rkv/clock.h"  // IWYU pragma: export

namespace rkv {

// The clock of a replicated group. Nobody slews it, so that its rate is that of the hardware; it
// stands still while the host is suspended.
class RawClock final : public Clock {
 public:
  Nanos now() const override {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return time.tv_sec * kNanosPerSecond + time.tv_nsec;
  }
};

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }

 private:
  Nanos now_ = 1;
};

}  // namespace rkv
