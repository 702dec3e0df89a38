// How long a primary's log may become while its database is copied, and until the replica has
// started with the copy.
#include "server/group/replica/copy_pace.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

constexpr CopyPace::Growth kGrowth{.at_once = 100, .at_its_end = 500, .when_it_has_started = 900};

CopyPace::Copy copy_to(const char* replica, std::uint64_t bytes, std::uint64_t total) {
  return {.replica = replica, .bytes = bytes, .total = total};
}
const CopyPace::Copy no_copy = copy_to("", 0, 0);

TEST(CopyPace, TheLogGrowsAsTheCopyProceeds) {
  CopyPace pace(kGrowth);
  EXPECT_FALSE(pace.limit(no_copy, false, 7000, 1));
  EXPECT_EQ(pace.limit(copy_to("b", 0, 0), false, 7000, 2), 7100U) << "its size is not known";
  EXPECT_EQ(pace.limit(copy_to("b", 0, 1000), false, 7050, 3), 7100U);
  EXPECT_EQ(pace.limit(copy_to("b", 250, 1000), false, 7100, 4), 7200U);
  EXPECT_EQ(pace.limit(copy_to("b", 1000, 1000), false, 7200, 5), 7500U);
  EXPECT_FALSE(pace.limit(no_copy, false, 7500, 6)) << "it was not received";
}

TEST(CopyPace, EachCopyBeginsAnew) {
  CopyPace pace(kGrowth);
  EXPECT_EQ(pace.limit(copy_to("b", 1000, 1000), false, 7000, 1), 7500U);
  EXPECT_EQ(pace.limit(copy_to("c", 0, 0), false, 7500, 2), 7600U) << "of another replica";
  EXPECT_EQ(pace.limit(copy_to("c", 700, 1000), false, 7600, 3), 7880U);
  EXPECT_EQ(pace.limit(copy_to("c", 0, 0), false, 7880, 4), 7980U) << "the last one has failed";
  EXPECT_FALSE(pace.limit(no_copy, false, 7980, 5));
  EXPECT_EQ(pace.limit(copy_to("c", 0, 0), false, 8000, 6), 8100U) << "it was not received";
}

TEST(CopyPace, NobodyWaitsForACopyThatStandsStill) {
  CopyPace pace(kGrowth);
  EXPECT_EQ(pace.limit(copy_to("b", 250, 1000), false, 0, 5), 200U);
  EXPECT_EQ(pace.limit(copy_to("b", 250, 1000), false, 0, 5 + CopyPace::kStandsStill - 1), 200U);
  EXPECT_FALSE(pace.limit(copy_to("b", 250, 1000), false, 0, 5 + CopyPace::kStandsStill));
  EXPECT_EQ(pace.limit(copy_to("b", 251, 1000), false, 0, 6 + CopyPace::kStandsStill), 200U);
}

// Writes of clients in the meantime do not count against them: the rest of the growth is split over
// the rest of the copy.
TEST(CopyPace, ACopyThatMovesAgainDoesNotStopThoseWhoHaveWritten) {
  constexpr Nanos kStill = CopyPace::kStandsStill;
  CopyPace pace(kGrowth);
  EXPECT_EQ(pace.limit(copy_to("b", 0, 0), false, 0, 5), 100U);
  EXPECT_FALSE(pace.limit(copy_to("b", 0, 0), false, 100, 5 + kStill));
  EXPECT_EQ(pace.limit(copy_to("b", 200, 1000), false, 340, 6 + kStill), 340U);
  EXPECT_EQ(pace.limit(copy_to("b", 600, 1000), false, 340, 7 + kStill), 420U);
  EXPECT_EQ(pace.limit(copy_to("b", 1000, 1000), false, 420, 8 + kStill), 500U);
  // Beyond the end of the growth they write nothing more, and go on behind it.
  EXPECT_FALSE(pace.limit(copy_to("b", 1000, 1000), false, 500, 8 + 2 * kStill));
  EXPECT_EQ(pace.limit(no_copy, true, 700, 9 + 2 * kStill), 700U);
  EXPECT_EQ(pace.limit(no_copy, true, 700, 9 + 2 * kStill + CopyPace::kStartsWithin / 2), 800U);
}

TEST(CopyPace, NobodyWaitsForACopyWhoseLogIsLost) {
  CopyPace pace(kGrowth);
  EXPECT_TRUE(pace.limit(copy_to("b", 0, 1000), false, 0, 5));
  EXPECT_FALSE(pace.limit(copy_to("b", 0, 1000), false, 100, 5 + CopyPace::kStandsStill));
  EXPECT_FALSE(pace.limit(copy_to("b", 500, 1000), false, 901, 6 + CopyPace::kStandsStill));
  EXPECT_FALSE(pace.limit(no_copy, true, 901, 7 + CopyPace::kStandsStill));
}

TEST(CopyPace, TheLogGrowsOnWhileTheReplicaStarts) {
  CopyPace pace(kGrowth);
  EXPECT_EQ(pace.limit(copy_to("b", 1000, 1000), false, 7000, 1), 7500U);
  EXPECT_EQ(pace.limit(no_copy, true, 7500, 10), 7500U);
  EXPECT_EQ(pace.limit(no_copy, true, 7500, 10 + CopyPace::kStartsWithin / 4), 7600U);
  EXPECT_EQ(pace.limit(no_copy, true, 7600, 10 + CopyPace::kStartsWithin / 2), 7700U);
  EXPECT_FALSE(pace.limit(no_copy, false, 7700, 11 + CopyPace::kStartsWithin / 2)) << "it is back";
}

TEST(CopyPace, NobodyWaitsForAReplicaThatDoesNotStart) {
  CopyPace pace(kGrowth);
  EXPECT_TRUE(pace.limit(copy_to("b", 1000, 1000), false, 7000, 1));
  EXPECT_TRUE(pace.limit(no_copy, true, 7500, 10));
  EXPECT_TRUE(pace.limit(no_copy, true, 7500, 10 + CopyPace::kStartsWithin - 1));
  EXPECT_FALSE(pace.limit(no_copy, true, 7500, 10 + CopyPace::kStartsWithin));
}

}  // namespace
}  // namespace rkv::server
