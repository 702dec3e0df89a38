#include "rkv/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

namespace rkv {
namespace {

struct HandClock final : Clock {
  Nanos now() const override { return at; }
  Nanos at = 5 * kNanosPerSecond;
};

TEST(Deadlines, AreRoundedUpToMilliseconds) {
  HandClock clock;
  const Deadline deadline = Deadline::after_ms(clock, 3);
  EXPECT_EQ(deadline.at(), clock.at + 3 * kNanosPerMs);
  EXPECT_EQ(deadline.left_ms(), 3);
  clock.at += 1;
  EXPECT_EQ(deadline.left_ms(), 3);
  clock.at += kNanosPerMs - 1;
  EXPECT_EQ(deadline.left_ms(), 2);
  clock.at += 2 * kNanosPerMs - 1;
  EXPECT_EQ(deadline.left_ms(), 1);
  EXPECT_FALSE(deadline.passed());
  clock.at += 1;
  EXPECT_EQ(deadline.left_ms(), 0);
  EXPECT_TRUE(deadline.passed());
}

// "Without a limit" is written as the largest number: it must neither wrap to a time that has
// passed, nor make a sleep of less than a millisecond out of a long one.
TEST(Deadlines, MayBeAsFarAwayAsOneLikes) {
  const HandClock clock;
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t ms : {kMost, kMost / kNanosPerMs, std::int64_t{1} << 32,
                                std::int64_t{std::numeric_limits<int>::max()} + 1}) {
    const Deadline deadline = Deadline::after_ms(clock, ms);
    EXPECT_FALSE(deadline.passed()) << ms;
    EXPECT_EQ(deadline.left_ms(), std::numeric_limits<int>::max()) << ms;
  }
  for (const std::int64_t ms : {std::int64_t{-1}, -kMost, -kMost - 1}) {
    const Deadline deadline = Deadline::after_ms(clock, ms);
    EXPECT_TRUE(deadline.passed()) << ms;
    EXPECT_EQ(deadline.left_ms(), 0) << ms;
  }
}

constexpr Nanos kLeastNanos = std::numeric_limits<Nanos>::min();
constexpr Nanos kMostNanos = std::numeric_limits<Nanos>::max();

template <class Rep, class Period = std::ratio<1>>
constexpr Nanos nanos_of(Rep count) {
  return saturated_nanos(std::chrono::duration<Rep, Period>(count));
}

TEST(SaturatedNanos, RoundUpToWholeNanoseconds) {
  using namespace std::chrono_literals;
  EXPECT_EQ(saturated_nanos(0s), 0);
  EXPECT_EQ(saturated_nanos(5s), 5 * kNanosPerSecond);
  EXPECT_EQ(saturated_nanos(-3ms), -3 * kNanosPerMs);
  EXPECT_EQ(saturated_nanos(2min), 120 * kNanosPerSecond);
  EXPECT_EQ((nanos_of<int, std::pico>(1)), 1);
  EXPECT_EQ((nanos_of<int, std::pico>(1000)), 1);
  EXPECT_EQ((nanos_of<int, std::pico>(1001)), 2);
  EXPECT_EQ((nanos_of<int, std::pico>(-1)), 0);
  EXPECT_EQ((nanos_of<int, std::pico>(-1001)), -1);
  EXPECT_EQ((nanos_of<int, std::ratio<1, 3>>(1)), 333'333'334);
  EXPECT_EQ((nanos_of<int, std::ratio<1, 3>>(-1)), -333'333'333);
}

TEST(SaturatedNanos, OfAFloatingPointNumberAreTheNearest) {
  using namespace std::chrono_literals;
  EXPECT_EQ(saturated_nanos(0.1s), 100'000'000);
  EXPECT_EQ(saturated_nanos(1.5s), 1'500'000'000);
  EXPECT_EQ(saturated_nanos(-1.5s), -1'500'000'000);
  EXPECT_EQ(saturated_nanos(0.25ns), 0);
  EXPECT_EQ(saturated_nanos(0.75ns), 1);
  EXPECT_EQ(saturated_nanos(-0.25ns), 0);
  EXPECT_EQ(saturated_nanos(-0.75ns), -1);
}

TEST(SaturatedNanos, StopAtTheEndsOfTheirRange) {
  using namespace std::chrono_literals;
  EXPECT_EQ(saturated_nanos(std::chrono::nanoseconds::max()), kMostNanos);
  EXPECT_EQ(saturated_nanos(std::chrono::nanoseconds::min()), kLeastNanos);
  EXPECT_EQ(saturated_nanos(std::chrono::microseconds::max()), kMostNanos);
  EXPECT_EQ(saturated_nanos(std::chrono::hours::max()), kMostNanos);
  EXPECT_EQ(saturated_nanos(std::chrono::hours::min()), kLeastNanos);
  EXPECT_EQ((nanos_of<std::uint64_t, std::nano>(~std::uint64_t{0})), kMostNanos);
  EXPECT_EQ((nanos_of<std::int64_t, std::exa>(std::numeric_limits<std::int64_t>::max())),
            kMostNanos);
  EXPECT_EQ((nanos_of<std::int64_t, std::exa>(-1)), kLeastNanos);
  // 2^63 is the first number beyond the range.
  EXPECT_EQ((nanos_of<std::uint64_t, std::nano>(std::uint64_t{1} << 63)), kMostNanos);
  EXPECT_EQ((nanos_of<std::uint64_t, std::pico>(~std::uint64_t{0})), 18'446'744'073'709'552);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(nanos_of<double>(kInfinite), kMostNanos);
  EXPECT_EQ(nanos_of<double>(-kInfinite), kLeastNanos);
  EXPECT_EQ((nanos_of<double, std::nano>(0x1p63)), kMostNanos);
  EXPECT_EQ((nanos_of<double, std::nano>(-0x1p63)), kLeastNanos);
  EXPECT_EQ(nanos_of<double>(std::numeric_limits<double>::quiet_NaN()), kLeastNanos);
}

// The steady clock moves on between the calls, so a deadline lies between two readings of it.
TEST(DeadlinesIn, CountFromNowOnTheSteadyClock) {
  using namespace std::chrono_literals;
  const SteadyClock clock;
  const Nanos before = clock.now();
  const Deadline deadline = Deadline::in(1h);
  const Nanos after = clock.now();
  EXPECT_GE(deadline.at(), before + 3600 * kNanosPerSecond);
  EXPECT_LE(deadline.at(), after + 3600 * kNanosPerSecond);
  EXPECT_FALSE(deadline.passed());
  EXPECT_GT(deadline.left_ms(), 0);
  EXPECT_LE(deadline.left_ms(), 3'600'000);
}

TEST(DeadlinesIn, NoTimeHasPassedAndAHugeOneNeverPasses) {
  using namespace std::chrono_literals;
  for (const Deadline& never :
       {Deadline::in(std::chrono::hours::max()), Deadline::in(std::chrono::nanoseconds::max()),
        Deadline::in(std::chrono::duration<double>::max())}) {
    EXPECT_EQ(never.at(), kMostNanos);
    EXPECT_FALSE(never.passed());
  }
  for (const Deadline& past : {Deadline::in(0s), Deadline::in(-5ms),
                               Deadline::in(std::chrono::hours::min()), Deadline::in(-0.5s)}) {
    EXPECT_TRUE(past.passed());
    EXPECT_EQ(past.left_ms(), 0);
  }
}

}  // namespace
}  // namespace rkv
