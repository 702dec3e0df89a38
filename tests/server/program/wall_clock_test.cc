#include "server/program/wall_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace rkv::server {
namespace {
// Its reader loses the processor behind the first look.
class Interrupted final : public Clock {
 public:
  Nanos now() const override {
    const Nanos now = steady_.now();
    if (first_) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    first_ = false;
    return now;
  }

 private:
  SteadyClock steady_;
  mutable bool first_ = true;
};

// It would have removed keys 200 ms before their time.
TEST(WallClock, ALookThatIsInterruptedIsNoStep) {
  const WallClock quiet(WallClock::look(SteadyClock()));
  const WallClock interrupted(WallClock::look(Interrupted()));
  EXPECT_NEAR(static_cast<double>(interrupted.unix_ms_at_0()),
              static_cast<double>(quiet.unix_ms_at_0()), 100);
}

class WallClockTest : public ::testing::Test {
 protected:
  void pass(Nanos time) {
    now_.clock += time;
    now_.since_boot += time;
    now_.unix_ms += time / kNanosPerMs;
  }
  void sleep(Nanos time) {
    now_.since_boot += time;
    now_.unix_ms += time / kNanosPerMs;
  }
  // As keys see it.
  std::int64_t unix_ms() const {
    return static_cast<std::int64_t>(wall_.unix_ms_at_0()) + now_.clock / kNanosPerMs;
  }

  WallClock::Look now_{.clock = 5 * kNanosPerSecond,
                       .since_boot = 900 * kNanosPerSecond,
                       .unix_ms = 1'795'000'000'000};
  WallClock wall_{now_};
};

TEST_F(WallClockTest, IsTheWallClock) {
  EXPECT_EQ(unix_ms(), now_.unix_ms);
  pass(100 * kNanosPerSecond);
  EXPECT_EQ(wall_.follow(now_), 0);
  EXPECT_EQ(unix_ms(), now_.unix_ms);
}

// A key would go a millisecond before its time.
TEST_F(WallClockTest, StandsWhileLooksDifferByAMillisecond) {
  const std::uint64_t at_0 = wall_.unix_ms_at_0();
  for (const int swing : {1, -1, -1, 1, 1}) {
    now_.unix_ms += swing;
    EXPECT_EQ(wall_.follow(now_), 0);
    EXPECT_EQ(wall_.unix_ms_at_0(), at_0);
  }
}

TEST_F(WallClockTest, CountsTheTimeAsleep) {
  sleep(3600 * kNanosPerSecond);
  EXPECT_EQ(wall_.follow(now_), 0) << "nobody has set it";
  EXPECT_EQ(unix_ms(), now_.unix_ms);
}

TEST_F(WallClockTest, IsFollowedInSmallStepsAndBackAtOnce) {
  now_.unix_ms += 400;
  EXPECT_EQ(wall_.follow(now_), 0);
  EXPECT_EQ(unix_ms(), now_.unix_ms);
  now_.unix_ms -= 3'600'000;
  EXPECT_EQ(wall_.follow(now_), -3'600'000);
  EXPECT_EQ(unix_ms(), now_.unix_ms);
}

TEST_F(WallClockTest, AheadIsBelievedWhenItHasStoodSo) {
  const std::int64_t before = now_.unix_ms;
  now_.unix_ms += 86'400'000;
  EXPECT_EQ(wall_.follow(now_), 0);
  EXPECT_EQ(unix_ms(), before);
  pass(WallClock::kBelievedAfter - kNanosPerSecond);
  EXPECT_EQ(wall_.follow(now_), 0);
  EXPECT_EQ(unix_ms(), before + 59'000);
  pass(kNanosPerSecond);
  EXPECT_EQ(wall_.follow(now_), 86'400'000);
  EXPECT_EQ(unix_ms(), now_.unix_ms);
}

TEST_F(WallClockTest, AheadForAMomentMovesNothing) {
  for (int i = 0; i < 10; ++i) {
    now_.unix_ms += 86'400'000;
    EXPECT_EQ(wall_.follow(now_), 0);
    pass(50 * kNanosPerSecond);
    EXPECT_EQ(wall_.follow(now_), 0);
    now_.unix_ms -= 86'400'000;
    EXPECT_EQ(wall_.follow(now_), 0);
    EXPECT_EQ(unix_ms(), now_.unix_ms);
  }
}

// Ahead by another amount at each look: it has not stood.
TEST_F(WallClockTest, AheadByMoreAndMoreIsNotBelieved) {
  const std::int64_t before = unix_ms();
  for (int i = 0; i < 10; ++i) {
    now_.unix_ms += 5000;
    pass(50 * kNanosPerSecond);
    EXPECT_EQ(wall_.follow(now_), 0);
  }
  EXPECT_EQ(unix_ms(), before + 500'000);
}

TEST(WallClock, ReadsTheMachines) {
  const SteadyClock clock;
  const WallClock wall(WallClock::look(clock));
  const auto unix_ms = static_cast<std::int64_t>(wall.unix_ms_at_0()) + clock.now() / kNanosPerMs;
  EXPECT_NEAR(static_cast<double>(unix_ms), static_cast<double>(WallClock::look(clock).unix_ms),
              60'000.0);
}

}  // namespace
}  // namespace rkv::server
