#include "server/request/timings.h"
#include "tests/support/manual_clock.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

TimingSum sum_of(const Timings& timings, Opcode opcode) {
  TimingSum sum;
  timings.add_to(sum, opcode);
  return sum;
}

TEST(Timings, AnAnswerEndsAtTheNextReadingOfTheClock) {
  ManualClock clock;
  Timings timings(clock, 4);
  const Nanos taken = clock.now();
  timings.answered(Opcode::kPut, taken);
  EXPECT_EQ(sum_of(timings, Opcode::kPut).count, 0U) << "nobody has read the clock yet";
  timings.at(taken + 1000);
  const TimingSum sum = sum_of(timings, Opcode::kPut);
  EXPECT_EQ(sum.count, 1U);
  EXPECT_EQ(sum.sum_ns, 1000U);
  EXPECT_EQ(sum_of(timings, Opcode::kGet).count, 0U);
  timings.at(taken + 9000);
  EXPECT_EQ(sum_of(timings, Opcode::kPut).count, 1U) << "counted once";
}

TEST(Timings, MoreAnswersThanATurnHasAreTimedAtOnce) {
  ManualClock clock;
  Timings timings(clock, 2);
  const Nanos taken = clock.now();
  clock.advance(500);
  for (int i = 0; i < 5; ++i)
    timings.answered(Opcode::kPing, taken);
  EXPECT_EQ(sum_of(timings, Opcode::kPing).count, 4U);
  timings.at(clock.now());
  EXPECT_EQ(sum_of(timings, Opcode::kPing).count, 5U);
  EXPECT_EQ(sum_of(timings, Opcode::kPing).sum_ns, 2500U);
}

TEST(Timings, BoundsThatArePowersOfTwoAreExact) {
  ManualClock clock;
  Timings timings(clock, 8);
  for (const Nanos duration : {1023, 1024, 1025, 0}) {
    timings.answered(Opcode::kGet, 0);
    timings.at(duration);
  }
  const TimingSum sum = sum_of(timings, Opcode::kGet);
  EXPECT_EQ(sum.at_most_power(10), 3U) << "1024 ns are at most 2^10 ns";
  EXPECT_EQ(sum.at_most_power(11), 4U);
  EXPECT_EQ(sum.at_most_power(kTimingBits), 4U);
}

TEST(Timings, PercentilesAreAtMostAnEighthTooHigh) {
  ManualClock clock;
  Timings timings(clock, 8);
  for (Nanos i = 1; i <= 10'000; ++i) {
    timings.answered(Opcode::kGet, 0);
    timings.at(i * 100);
  }
  const TimingSum sum = sum_of(timings, Opcode::kGet);
  for (const double percent : {1.0, 50.0, 99.0, 100.0}) {
    const double exact = percent * 10'000;
    EXPECT_GE(static_cast<double>(sum.percentile(percent)), exact) << percent;
    EXPECT_LE(static_cast<double>(sum.percentile(percent)), exact * 1.125 + 1) << percent;
  }
  EXPECT_EQ(TimingSum{}.percentile(50), 0U);
}

TEST(Timings, ClocksThatGoBackAndAgesAreBounded) {
  ManualClock clock;
  Timings timings(clock, 8);
  timings.answered(Opcode::kGet, 1000);
  timings.at(10);
  timings.answered(Opcode::kGet, 0);
  timings.at(3600 * kNanosPerSecond);
  const TimingSum sum = sum_of(timings, Opcode::kGet);
  EXPECT_EQ(sum.count, 2U);
  EXPECT_EQ(sum.buckets.front(), 1U);
  EXPECT_EQ(sum.buckets.back(), 1U);
}

}  // namespace
}  // namespace rkv::server
