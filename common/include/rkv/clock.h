// Time as a parameter: what waits takes a Clock, so that a test moves time by hand.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

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

// A point in time by which an operation must have ended. The clock must outlive it, so a temporary
// clock does not compile.
class Deadline {
 public:
  Deadline(const Clock& clock, Nanos at) : clock_(&clock), at_(at) {}
  Deadline(const Clock&& clock, Nanos at) = delete;
  // Any number of milliseconds: what is too far for Nanos, such as the largest of them, is never.
  static Deadline after_ms(const Clock& clock, std::int64_t ms) {
    Nanos at = 0;
    if (__builtin_mul_overflow(ms, kNanosPerMs, &at) ||
        __builtin_add_overflow(at, clock.now(), &at)) {
      at = ms < 0 ? std::numeric_limits<Nanos>::min() : std::numeric_limits<Nanos>::max();
    }
    return {clock, at};
  }
  static Deadline after_ms(const Clock&& clock, std::int64_t ms) = delete;
  bool passed() const { return clock_->now() >= at_; }
  Nanos at() const { return at_; }
  // Milliseconds left, rounded up; 0 when passed. For poll(2)-like calls: of more than fits, what
  // fits, so whoever wakes up looks again at passed().
  int left_ms() const {
    const Nanos now = clock_->now();
    if (at_ <= now) return 0;
    return static_cast<int>(
        std::min<Nanos>((at_ - now - 1) / kNanosPerMs + 1, std::numeric_limits<int>::max()));
  }

 private:
  const Clock* clock_;
  Nanos at_;
};

}  // namespace rkv
