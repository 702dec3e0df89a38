// How long a primary's log may become while its database is copied.
#include "server/replica/copy_pace.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

TEST(CopyPace, TheLogGrowsAsTheCopyProceeds) {
  CopyPace pace(100, 500);
  EXPECT_FALSE(pace.limit("", 0, 0, 1));
  EXPECT_EQ(pace.limit("b", 0, 0, 2), 100U) << "its size is not known";
  EXPECT_EQ(pace.limit("b", 0, 1000, 3), 100U);
  EXPECT_EQ(pace.limit("b", 250, 1000, 4), 200U);
  EXPECT_EQ(pace.limit("b", 1000, 1000, 5), 500U);
  EXPECT_FALSE(pace.limit("", 0, 0, 6));
}

TEST(CopyPace, NobodyWaitsForACopyThatStandsStill) {
  CopyPace pace(100, 500);
  EXPECT_EQ(pace.limit("b", 250, 1000, 5), 200U);
  EXPECT_EQ(pace.limit("b", 250, 1000, 5 + CopyPace::kStandsStill - 1), 200U);
  EXPECT_FALSE(pace.limit("b", 250, 1000, 5 + CopyPace::kStandsStill));
  EXPECT_EQ(pace.limit("b", 251, 1000, 6 + CopyPace::kStandsStill), 200U);
  EXPECT_EQ(pace.limit("c", 251, 1000, 6 + 2 * CopyPace::kStandsStill), 200U) << "another copy";
}

}  // namespace
}  // namespace rkv::server
