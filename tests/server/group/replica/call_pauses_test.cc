// How often a backup calls a primary that does not take it.
#include "server/group/replica/call_pauses.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

const Member kPrimary{.name = "a", .address = "127.0.0.1:1", .epoch = 7};

TEST(CallPauses, EachIsTwiceAsLongUpToTheLongest) {
  CallPauses pauses;
  pauses.set_primary(kPrimary);
  Nanos now = 5 * kNanosPerSecond;
  EXPECT_TRUE(pauses.are_over(now));
  for (const Nanos ms : {50, 100, 200, 400, 800, 1000, 1000}) {
    pauses.failed("refused", now);
    pauses.set_primary(kPrimary);
    EXPECT_FALSE(pauses.are_over(now + (ms * kNanosPerMs) - 1));
    now += ms * kNanosPerMs;
    EXPECT_TRUE(pauses.are_over(now));
  }
}

TEST(CallPauses, AConnectionThatLastedIsForgivenAndOneThatDidNotIsNot) {
  CallPauses pauses;
  pauses.set_primary(kPrimary);
  pauses.failed("refused", 0);
  EXPECT_TRUE(pauses.ended("it says nothing", 0, CallPauses::kLasts - 1));
  EXPECT_FALSE(pauses.are_over(CallPauses::kLasts - 1 + (2 * CallPauses::kFirst) - 1));
  EXPECT_TRUE(pauses.ended("it says nothing", 0, CallPauses::kLasts)) << "it is news again";
  EXPECT_TRUE(pauses.are_over(CallPauses::kLasts + CallPauses::kFirst));
}

TEST(CallPauses, AReasonIsNewsOnce) {
  CallPauses pauses;
  pauses.set_primary(kPrimary);
  EXPECT_TRUE(pauses.failed("another secret", 0));
  EXPECT_FALSE(pauses.failed("another secret", 1));
  EXPECT_TRUE(pauses.ended("refused", 1, 2));
  EXPECT_FALSE(pauses.ended("refused", 3, 4));
  EXPECT_FALSE(pauses.failed("another secret", 5)) << "it was said before";
  for (std::size_t other = 2; other < CallPauses::kReasons; ++other)
    EXPECT_TRUE(pauses.failed(std::to_string(other), 6));
  EXPECT_FALSE(pauses.failed("one more", 7)) << "reasons are not kept without end";
}

TEST(CallPauses, TheShortestDoesNotGrow) {
  CallPauses pauses;
  pauses.set_primary(kPrimary);
  for (int call = 0; call < 5; ++call) {
    pauses.begin_shortest(call);
    EXPECT_FALSE(pauses.are_over(call + CallPauses::kFirst - 1));
    EXPECT_TRUE(pauses.are_over(call + CallPauses::kFirst));
  }
}

TEST(CallPauses, AnotherPrimaryIsCalledAtOnce) {
  CallPauses pauses;
  for (const Member& primary : {Member{.name = "b", .address = "", .epoch = 7},
                                Member{.name = "b", .address = "", .epoch = 8}, kPrimary}) {
    pauses.set_primary(primary);
    EXPECT_TRUE(pauses.are_over(0));
    EXPECT_TRUE(pauses.failed("refused", 0));
    EXPECT_FALSE(pauses.are_over(0));
  }
}

}  // namespace
}  // namespace rkv::server
