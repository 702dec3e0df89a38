#include "rkv/clock.h"

#include <gtest/gtest.h>

#include <limits>

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

}  // namespace
}  // namespace rkv
