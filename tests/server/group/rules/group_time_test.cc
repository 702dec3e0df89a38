#include "server/group/rules/group_time.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace rkv::server {
namespace {

constexpr std::int64_t kUnixMs = 1'795'000'000'000;
constexpr std::int64_t kDayMs = 86'400'000;

TEST(KnownTime, RunsSlowerThanClocks) {
  TimeOfBackup time;
  EXPECT_EQ(time.at(5), 0U) << "nothing is known";
  time.raise(kUnixMs, kNanosPerSecond);
  EXPECT_EQ(time.at(2 * kNanosPerSecond), kUnixMs + 980U);
  EXPECT_EQ(time.by_clock(2 * kNanosPerSecond), kUnixMs + 1000U);
  TimeOfAnswers slower;
  slower.raise(kUnixMs, kNanosPerSecond);
  EXPECT_EQ(slower.at(2 * kNanosPerSecond), kUnixMs + 960U);
}

TEST(KnownTime, NeverFalls) {
  TimeOfBackup time;
  time.raise(kUnixMs, kNanosPerSecond);
  time.raise(kUnixMs - 5000, 2 * kNanosPerSecond);
  EXPECT_EQ(time.at(2 * kNanosPerSecond), kUnixMs + 980U);
  time.raise(kUnixMs + 990, 2 * kNanosPerSecond);
  EXPECT_EQ(time.at(3 * kNanosPerSecond), kUnixMs + 1970U);
}

TEST(TimeLine, RunsUntilItsEnd) {
  const TimeLine line{.unix_ms_at_0 = kUnixMs, .until = 500 * kNanosPerMs};
  EXPECT_EQ(line.at(100 * kNanosPerMs), kUnixMs + 100U);
  EXPECT_EQ(line.at(900 * kNanosPerMs), kUnixMs + 500U);
}

struct GroupClockTest : testing::Test {
  GroupClock::Reading reading{
      .clock = 5 * kNanosPerSecond, .since_boot = 900 * kNanosPerSecond, .unix_ms = kUnixMs};
  GroupClock clock{reading, 0};

  // Turns of the replicator. Returns what the clock was set ahead by.
  std::int64_t pass(Nanos time) {
    std::int64_t steps = 0;
    for (; time > 0; time -= 50 * kNanosPerMs) {
      reading.clock += 50 * kNanosPerMs;
      reading.since_boot += 50 * kNanosPerMs;
      reading.unix_ms += 50;
      const std::uint64_t before = now();
      steps += clock.follow(reading);
      EXPECT_GE(now(), before) << "it falls";
    }
    return steps;
  }
  std::uint64_t now() const { return clock.unix_ms(reading.clock); }
  std::int64_t behind() const { return reading.unix_ms - static_cast<std::int64_t>(now()); }
};

TEST_F(GroupClockTest, IsTheWallClock) {
  EXPECT_EQ(behind(), 0);
  EXPECT_EQ(pass(100 * kNanosPerSecond), 0);
  EXPECT_EQ(behind(), 0);
}

TEST_F(GroupClockTest, AWallClockThatIsWrongForAMomentMovesNothing) {
  for (const std::int64_t wrong_ms : {kDayMs, -kDayMs, std::int64_t{3000}, std::int64_t{-3000}}) {
    reading.unix_ms += wrong_ms;
    EXPECT_EQ(pass(50 * kNanosPerSecond), 0);
    reading.unix_ms -= wrong_ms;
    EXPECT_EQ(pass(kNanosPerSecond), 0);
    EXPECT_EQ(behind(), 0);
  }
}

TEST_F(GroupClockTest, IsSetAheadWhenTheWallClockHasStoodSo) {
  reading.unix_ms += kDayMs;
  EXPECT_EQ(pass(59 * kNanosPerSecond), 0);
  EXPECT_EQ(pass(2 * kNanosPerSecond), kDayMs);
  EXPECT_EQ(behind(), 0);
}

TEST_F(GroupClockTest, AWallClockThatRunsAwayIsNotBelieved) {
  for (int i = 0; i < 10; ++i) {
    reading.unix_ms += 5000;
    EXPECT_EQ(pass(50 * kNanosPerSecond), 0);
  }
}

// Time to live goes on, whatever the wall clock shows.
TEST_F(GroupClockTest, RunsSlowerWhenTheWallClockWasSetBackAndNeverStands) {
  reading.unix_ms -= 3'600'000;
  EXPECT_EQ(pass(60 * kNanosPerSecond), 0);
  const std::uint64_t before = now();
  EXPECT_EQ(pass(100 * kNanosPerSecond), 0);
  EXPECT_GE(now(), before + 99'400);
  EXPECT_LE(now(), before + 99'600);
}

TEST_F(GroupClockTest, ApproachesAWallClockThatIsNear) {
  reading.unix_ms += 800;
  EXPECT_EQ(pass(100 * kNanosPerSecond), 0);
  EXPECT_NEAR(static_cast<double>(behind()), 300.0, 2.0);
  EXPECT_EQ(pass(100 * kNanosPerSecond), 0);
  EXPECT_LE(std::abs(behind()), 2);
}

TEST_F(GroupClockTest, CountsTheTimeAsleep) {
  reading.since_boot += 3600 * kNanosPerSecond;
  reading.unix_ms += 3'600'000;
  EXPECT_EQ(pass(50 * kNanosPerMs), 0);
  EXPECT_EQ(behind(), 0);
}

// The new primary's own clock is a day ahead, or was wrong when it took over.
TEST_F(GroupClockTest, ATakeOverBeginsWithWhatTheGroupKnows) {
  reading.unix_ms = kUnixMs + kDayMs;
  clock = GroupClock(reading, kUnixMs - 4);
  EXPECT_EQ(now(), kUnixMs - 4U);
  EXPECT_EQ(pass(30 * kNanosPerSecond), 0);
  EXPECT_EQ(now(), kUnixMs + 29'996U);
  reading.unix_ms -= kDayMs;
  EXPECT_EQ(pass(60 * kNanosPerSecond), 0);
  EXPECT_LE(std::abs(behind()), 2);
}

}  // namespace
}  // namespace rkv::server
