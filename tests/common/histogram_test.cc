#include "common/histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace rkv {
namespace {

TEST(Histogram, EmptyAnswersZero) {
  EXPECT_EQ(Histogram().percentile(99), 0U);
}

TEST(Histogram, IsExactBelow256) {
  Histogram histogram;
  for (std::uint64_t i = 1; i <= 200; ++i)
    histogram.record(i);
  EXPECT_EQ(histogram.percentile(50), 100U);
  EXPECT_EQ(histogram.percentile(99), 198U);
  EXPECT_EQ(histogram.percentile(100), 200U);
}

// 7 % of 100 is more than 7 as a double has it.
TEST(Histogram, APercentileOfAHundredValuesIsTheValueOfThatNumber) {
  Histogram histogram;
  for (std::uint64_t i = 1; i <= 100; ++i)
    histogram.record(i);
  for (std::uint64_t percent = 1; percent <= 100; ++percent)
    EXPECT_EQ(histogram.percentile(static_cast<double>(percent)), percent);
}

TEST(LogLinearBuckets, MeetWithoutGapsUpToTheLargestValue) {
  using Buckets = LogLinearBuckets<7>;
  constexpr std::size_t kBuckets = Buckets::count(64);
  for (std::size_t i = 0; i < kBuckets; ++i) {
    ASSERT_EQ(Buckets::index(Buckets::lowest(i)), i);
    ASSERT_EQ(Buckets::index(Buckets::highest(i)), i);
    if (i != 0) {
      ASSERT_EQ(Buckets::lowest(i), Buckets::highest(i - 1) + 1);
    }
  }
  EXPECT_EQ(Buckets::highest(kBuckets - 1), UINT64_MAX);
}

RC_GTEST_PROP(Histogram, PercentilesAreWithinOneBucketOfTheSortedSample,
              (std::vector<std::uint64_t> sample)) {
  RC_PRE(!sample.empty());
  Histogram first;
  Histogram second;
  for (std::size_t i = 0; i < sample.size(); ++i)
    (i % 2 == 0 ? first : second).record(sample[i]);
  first.merge(second);
  std::sort(sample.begin(), sample.end());
  RC_ASSERT(first.count() == sample.size());
  RC_ASSERT(first.max() == sample.back());
  RC_ASSERT(first.percentile(100) == sample.back());
  const std::uint64_t median = sample[(sample.size() + 1) / 2 - 1];
  RC_ASSERT(first.percentile(50) >= median);
  RC_ASSERT(static_cast<double>(first.percentile(50)) <=
            static_cast<double>(median) * (1 + 1.0 / 128) + 1);
}

}  // namespace
}  // namespace rkv
