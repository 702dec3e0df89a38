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
