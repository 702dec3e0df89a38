#include "server/index/due_times.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

constexpr std::uint32_t kGroups = 4;  // two pairs a segment

GroupPlace group(std::uint32_t number) {
  return {.extent = 0, .number = number};
}
Segment segment(std::uint32_t number) {
  return {.extent = 0, .number = number, .depth = 0};
}

class DueTimesTest : public ::testing::Test {
 protected:
  DueTimesTest() : due_(kGroups) { due_.add_extent(0, 3); }
  DueTimes due_;
};

TEST_F(DueTimesTest, NothingIsDueAtFirst) {
  EXPECT_EQ(due_.earliest(), DueTimes::kNever);
  EXPECT_EQ(due_.of_segment(segment(2)), DueTimes::kNever);
  EXPECT_EQ(due_.of_pair(group(11)), DueTimes::kNever);
}

TEST_F(DueTimesTest, EachLevelKnowsTheEarliestBelowIt) {
  EXPECT_TRUE(due_.note(group(0), 50));
  EXPECT_FALSE(due_.note(group(1), 60)) << "the same pair";
  EXPECT_FALSE(due_.note(group(2), 70)) << "the other pair of the segment";
  EXPECT_FALSE(due_.note(group(5), 55)) << "another segment";
  EXPECT_TRUE(due_.note(group(4), 40));
  EXPECT_EQ(due_.of_pair(group(1)), 50U);
  EXPECT_EQ(due_.of_pair(group(2)), 70U);
  EXPECT_EQ(due_.of_segment(segment(0)), 50U);
  EXPECT_EQ(due_.of_segment(segment(1)), 40U);
  EXPECT_EQ(due_.earliest(), 40U);
  EXPECT_TRUE(due_.finds(group(3), 70));
  EXPECT_FALSE(due_.finds(group(3), 69));
}

TEST_F(DueTimesTest, WhatIsNotedWhileTheExpirerLooksStays) {
  due_.note(group(0), 50);
  due_.take_earliest();
  due_.take(segment(0));
  EXPECT_TRUE(due_.note(group(2), 60)) << "the expirer may have passed the pair";
  due_.set_pair(group(0), DueTimes::kNever);
  due_.give_back(segment(0));
  EXPECT_EQ(due_.of_segment(segment(0)), 60U);
  EXPECT_EQ(due_.earliest(), 60U);
  EXPECT_TRUE(due_.finds(group(2), 60));
}

TEST_F(DueTimesTest, BothHalvesOfASplitAreFound) {
  due_.note(group(0), 50);
  due_.note(group(3), 70);
  due_.take_earliest();
  due_.take(segment(0));
  due_.split(segment(0), segment(2));
  EXPECT_TRUE(due_.finds(group(8), 50)) << "although the expirer has taken the old segment's time";
  EXPECT_TRUE(due_.finds(group(10), 70));
}

}  // namespace
}  // namespace rkv::server
