#include "server/monitor/fitness.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

struct FitnessTest : ::testing::Test {
  Fitness::Look look{.turns = {1, 1}};
  Fitness fitness{[this] { return look; }};
  Nanos now = 1000 * kNanosPerSecond;

  // Returns its answer after that time, in which the first `living` threads take turns.
  bool may_lead_after(Nanos time, std::size_t living) {
    bool may = true;
    for (const Nanos end = now + time; now < end;) {
      now += kNanosPerSecond / 10;
      for (std::size_t i = 0; i < living; ++i)
        ++look.turns[i];
      may = fitness.may_lead(now);
    }
    return may;
  }
};

TEST_F(FitnessTest, AServerWhoseThreadsTakeTurnsMayLead) {
  EXPECT_TRUE(may_lead_after(60 * kNanosPerSecond, 2));
  EXPECT_EQ(fitness.why_not(), "");
}

TEST_F(FitnessTest, OneThatIsStuckMayNot) {
  EXPECT_TRUE(may_lead_after(Liveness::kStuckAfter - kNanosPerSecond, 1));
  EXPECT_FALSE(may_lead_after(3 * kNanosPerSecond, 1));
  EXPECT_NE(fitness.why_not(), "");
  EXPECT_TRUE(may_lead_after(kNanosPerSecond, 2)) << "it goes on";
}

TEST_F(FitnessTest, ADeviceThatComesBackSoonChangesNothing) {
  look.has_way_in = false;
  EXPECT_TRUE(may_lead_after(Fitness::kWithoutWayIn - kNanosPerSecond, 2));
  look.has_way_in = true;
  EXPECT_TRUE(may_lead_after(kNanosPerSecond, 2));
  look.has_way_in = false;
  EXPECT_TRUE(may_lead_after(Fitness::kWithoutWayIn - kNanosPerSecond, 2));
  EXPECT_FALSE(may_lead_after(2 * kNanosPerSecond, 2));
}

// It, and all its threads.
TEST_F(FitnessTest, AProcessThatStoodStillMayLead) {
  EXPECT_TRUE(may_lead_after(kNanosPerSecond, 2));
  now += 60 * kNanosPerSecond;
  EXPECT_TRUE(fitness.may_lead(now));
}

}  // namespace
}  // namespace rkv::server
