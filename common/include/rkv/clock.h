// Time as a parameter: what waits takes a Clock, so that a test moves time by hand.
#pragma once

#include <chrono>
#include <cstdint>

#include "rkv/export.h"

namespace rkv {

// Monotonic nanoseconds; the zero point means nothing.
using Nanos = std::int64_t;
inline constexpr Nanos kNanosPerMs = 1'000'000;
inline constexpr Nanos kNanosPerSecond = 1'000'000'000;

class RKV_EXPORT Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  Nanos now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// A point in time by which an operation must have ended.
class Deadline {
 public:
  Deadline(const Clock& clock, Nanos at) : clock_(&clock), at_(at) {}
  static Deadline after_ms(const Clock& clock, std::int64_t ms) {
    return {clock, clock.now() + ms * kNanosPerMs};
  }
  bool passed() const { return clock_->now() >= at_; }
  Nanos at() const { return at_; }
  // Milliseconds left, rounded up; 0 when passed. For poll(2)-like calls.
  int left_ms() const {
    const Nanos left = at_ - clock_->now();
    return left <= 0 ? 0 : static_cast<int>((left + kNanosPerMs - 1) / kNanosPerMs);
  }

 private:
  const Clock* clock_;
  Nanos at_;
};

}  // namespace rkv
