// How long a primary's log may become while its database is copied.
#include "server/replica/copy_pace.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

TEST(CopyPace, TheLogGrowsAsTheCopyProceeds) {
  CopyPace pace(100, 500);
  EXPECT_FALSE(pace.limit("", 0, 0, 7000, 1));
  EXPECT_EQ(pace.limit("b", 0, 0, 7000, 2), 7100U) << "its size is not known";
  EXPECT_EQ(pace.limit("b", 0, 1000, 7050, 3), 7100U);
  EXPECT_EQ(pace.limit("b", 250, 1000, 7100, 4), 7200U);
  EXPECT_EQ(pace.limit("b", 1000, 1000, 7200, 5), 7500U);
  EXPECT_FALSE(pace.limit("", 0, 0, 7500, 6));
}

TEST(CopyPace, EachCopyBeginsAnew) {
  CopyPace pace(100, 500);
  EXPECT_EQ(pace.limit("b", 1000, 1000, 7000, 1), 7500U);
  EXPECT_EQ(pace.limit("c", 0, 0, 7500, 2), 7600U) << "of another replica";
  EXPECT_EQ(pace.limit("c", 700, 1000, 7600, 3), 7880U);
  EXPECT_EQ(pace.limit("c", 0, 0, 7880, 4), 7980U) << "the last one has failed";
}

TEST(CopyPace, NobodyWaitsForACopyThatStandsStill) {
  CopyPace pace(100, 500);
  EXPECT_EQ(pace.limit("b", 250, 1000, 0, 5), 200U);
  EXPECT_EQ(pace.limit("b", 250, 1000, 0, 5 + CopyPace::kStandsStill - 1), 200U);
  EXPECT_FALSE(pace.limit("b", 250, 1000, 0, 5 + CopyPace::kStandsStill));
  EXPECT_EQ(pace.limit("b", 251, 1000, 0, 6 + CopyPace::kStandsStill), 200U);
}

}  // namespace
}  // namespace rkv::server
