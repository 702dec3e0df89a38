// Time as a parameter: functions that wait take a Clock, so that a test can advance time by hand.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "rkv/export.h"

namespace rkv {

// Monotonic nanoseconds; the zero point has no meaning.
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

// A point in time by which an operation must have ended. The clock must outlive the Deadline, so
// passing a temporary clock does not compile.
class Deadline {
 public:
  Deadline(const Clock& clock, Nanos at) : clock_(&clock), at_(at) {}
  Deadline(const Clock&& clock, Nanos at) = delete;
  // Any number of milliseconds. A time beyond the range of Nanos, such as the largest int64, means
  // never.
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
  // Milliseconds left, rounded up; 0 when passed. For calls like poll(2): the result is capped at
  // the largest int, so callers check passed() again after waking up.
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
