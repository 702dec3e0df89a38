// How long a wait spins: the policy, and that a spin ends when it must.
#include "rdma/transport/spin_window.h"

#include <gtest/gtest.h>

namespace rkv::rdma {
namespace {

constexpr Nanos kSoonOver = SpinWindow::kSoon;
constexpr Nanos kLate = SpinWindow::kSoon + 1;

// A spin that catches an event after more than the shortest window. The spin must have seen the
// clock so late as well, whatever took the processor from this thread: so the time begins within
// the spin, and the event comes some looks at the clock later.
void succeed(SpinWindow& window) {
  const SteadyClock clock;
  Nanos begin = 0;
  int late_checks = 0;
  const auto late = [&] {
    if (begin == 0) begin = clock.now();
    if (clock.now() - begin > SpinWindow::kShortest * 3 / 2) ++late_checks;
    return late_checks > 100;
  };
  EXPECT_TRUE(window.spin(late, PollMode::kBusy, Deadline::after_ms(clock, 60'000)));
}

TEST(SpinWindows, GrowWhileSleepsAreSoonOver) {
  SpinWindow window;
  Nanos last = window.length();
  EXPECT_EQ(last, SpinWindow::kShortest);
  while (last < SpinWindow::kLongest) {
    window.slept(kSoonOver);
    EXPECT_GT(window.length(), last);
    last = window.length();
    succeed(window);
  }
  EXPECT_EQ(last, SpinWindow::kLongest);
}

TEST(SpinWindows, ShrinkWhileSleepsAreLong) {
  SpinWindow window;
  window.slept(kSoonOver);
  succeed(window);
  const Nanos grown = window.length();
  window.slept(kLate);
  EXPECT_LT(window.length(), grown);
  EXPECT_EQ(window.length(), SpinWindow::kShortest);
}

void idle(SpinWindow& window) {
  for (unsigned i = 0; i < 2 * SpinWindow::kIdle; ++i)
    window.slept(kLate);
}

TEST(SpinWindows, AreEmptyWhileTheThreadIsIdle) {
  SpinWindow window;
  idle(window);
  EXPECT_EQ(window.length(), 0);
}

TEST(SpinWindows, OpenAgainWithTheFirstSleepThatIsSoonOver) {
  SpinWindow window;
  idle(window);
  window.slept(kSoonOver);
  EXPECT_EQ(window.length(), SpinWindow::kShortest);
  window.slept(kSoonOver);
  EXPECT_GT(window.length(), SpinWindow::kShortest);
}

TEST(SpinWindows, StayOpenWhileSomeSpinsSucceed) {
  SpinWindow window;
  const SteadyClock clock;
  for (unsigned i = 0; i < 10 * SpinWindow::kIdle; ++i) {
    window.slept(kLate);
    if (i % (SpinWindow::kIdle - 1) == 0) {
      EXPECT_TRUE(
          window.spin([] { return true; }, PollMode::kAdaptive, Deadline::after_ms(clock, 60'000)));
    }
  }
  EXPECT_EQ(window.length(), SpinWindow::kShortest);
}

TEST(SpinWindows, StayShortForAWhileWhenLongerOnesDoNotHelp) {
  SpinWindow window;
  for (unsigned i = 0; i <= SpinWindow::kFailures; ++i)
    window.slept(i % 2 == 0 ? kSoonOver : kLate);
  while (window.length() > SpinWindow::kShortest)
    window.slept(kSoonOver);
  for (unsigned i = 0; i < SpinWindow::kHeld; ++i) {
    EXPECT_EQ(window.length(), SpinWindow::kShortest) << i;
    window.slept(kSoonOver);
  }
  window.slept(kSoonOver);
  EXPECT_GT(window.length(), SpinWindow::kShortest) << "it is tried again";
}

TEST(SpinWindows, StayLongAsLongAsTheyHelp) {
  SpinWindow window;
  for (unsigned i = 0; i < 10 * SpinWindow::kFailures; ++i) {
    window.slept(kSoonOver);
    succeed(window);
  }
  EXPECT_EQ(window.length(), SpinWindow::kLongest);
}

TEST(SpinWindows, ASpinEndsWithTheWindow) {
  SpinWindow window;
  const SteadyClock clock;
  const Nanos begin = clock.now();
  EXPECT_FALSE(
      window.spin([] { return false; }, PollMode::kAdaptive, Deadline::after_ms(clock, 60'000)));
  EXPECT_GE(clock.now() - begin, window.length());
}

TEST(SpinWindows, ABusySpinEndsWithTheDeadlineOnly) {
  SpinWindow window;
  const SteadyClock clock;
  const Nanos begin = clock.now();
  EXPECT_TRUE(window.spin([] { return false; }, PollMode::kBusy, Deadline::after_ms(clock, 5)));
  EXPECT_GE(clock.now() - begin, 4 * kNanosPerMs);
}

}  // namespace
}  // namespace rkv::rdma
