// Time as a parameter: functions that wait take a Deadline.
//
//   queue.wait(done, Deadline::in(5s));              // on the system's clock
//   step(Deadline::after_ms(clock, 1000));           // on a clock that a test advances by hand
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "rkv/export.h"

namespace rkv {

// Monotonic nanoseconds; the zero point has no meaning.
using Nanos = std::int64_t;
inline constexpr Nanos kNanosPerMs = 1'000'000;
inline constexpr Nanos kNanosPerSecond = 1'000'000'000;

// A duration of any type in nanoseconds, rounded up. A floating-point number is rounded to the
// nearest instead, since 0.1 s has no exact one. A duration beyond the range of Nanos becomes the
// largest or the smallest number. One that is not a number becomes the smallest.
template <class Rep, class Period>
  requires std::is_arithmetic_v<Rep>
constexpr Nanos saturated_nanos(std::chrono::duration<Rep, Period> time) {
  constexpr Nanos kLeast = std::numeric_limits<Nanos>::min();
  constexpr Nanos kMost = std::numeric_limits<Nanos>::max();
  if constexpr (std::is_floating_point_v<Rep>) {
    const auto ns = static_cast<long double>(time.count()) * Period::num / Period::den *
                    static_cast<long double>(kNanosPerSecond);
    if (!(ns > static_cast<long double>(kLeast))) return kLeast;
    if (ns >= static_cast<long double>(kMost)) return kMost;
    return static_cast<Nanos>(ns < 0 ? ns - 0.5L : ns + 0.5L);
  } else {
    __extension__ using Wide = __int128;
    Wide ns = 0;
    if (__builtin_mul_overflow(static_cast<Wide>(time.count()),
                               static_cast<Wide>(Period::num) * kNanosPerSecond, &ns)) {
      return time.count() < Rep{} ? kLeast : kMost;
    }
    const Wide whole = ns / Period::den + (ns % Period::den > 0 ? 1 : 0);
    if (whole > kMost) return kMost;
    return whole < kLeast ? kLeast : static_cast<Nanos>(whole);
  }
}

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

// A point in time by which an operation must have ended. A clock that is passed must outlive the
// Deadline, so passing a temporary clock does not compile.
class Deadline {
 public:
  Deadline(const Clock& clock, Nanos at) : clock_(&clock), at_(at) {}
  Deadline(const Clock&& clock, Nanos at) = delete;
  // Ends after `time` on the system's steady clock. A time beyond the range of Nanos means never,
  // such as std::chrono::hours::max(). Zero or less has passed.
  template <class Rep, class Period>
  static Deadline in(std::chrono::duration<Rep, Period> time) {
    return {nullptr, after(SteadyClock().now(), saturated_nanos(time))};
  }
  // Any number of milliseconds. A time beyond the range of Nanos, such as the largest int64, means
  // never.
  static Deadline after_ms(const Clock& clock, std::int64_t ms) {
    const std::chrono::duration<std::int64_t, std::milli> time(ms);
    return {clock, after(clock.now(), saturated_nanos(time))};
  }
  static Deadline after_ms(const Clock&& clock, std::int64_t ms) = delete;
  bool passed() const { return now() >= at_; }
  Nanos at() const { return at_; }
  // Milliseconds left, rounded up; 0 when passed. For calls like poll(2): the result is capped at
  // the largest int, so callers check passed() again after waking up.
  int left_ms() const {
    const Nanos present = now();
    if (at_ <= present) return 0;
    return static_cast<int>(
        std::min<Nanos>((at_ - present - 1) / kNanosPerMs + 1, std::numeric_limits<int>::max()));
  }

 private:
  Deadline(std::nullptr_t, Nanos at) : clock_(nullptr), at_(at) {}
  static Nanos after(Nanos present, Nanos time) {
    Nanos at = 0;
    if (!__builtin_add_overflow(time, present, &at)) return at;
    return time < 0 ? std::numeric_limits<Nanos>::min() : std::numeric_limits<Nanos>::max();
  }
  Nanos now() const { return clock_ != nullptr ? clock_->now() : SteadyClock().now(); }

  const Clock* clock_;  // nullptr: a SteadyClock
  Nanos at_;
};

}  // namespace rkv
