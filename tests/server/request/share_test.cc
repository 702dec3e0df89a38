#include "server/request/share.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

constexpr Nanos kShareParts = 100;
constexpr Nanos kStretch = 5 * kNanosPerMs;

TEST(Share, IsNoMoreThanItsPartOfTheTime) {
  Share share(kShareParts, kStretch);
  Nanos now = 0;
  Nanos spent = 0;
  while (now < 10 * kNanosPerSecond) {
    if (share.has_some(now)) {
      share.spend(kNanosPerMs);
      spent += kNanosPerMs;
      now += kNanosPerMs;
    } else {
      EXPECT_GT(share.again_at(), now);
      now = share.again_at();
      EXPECT_TRUE(share.has_some(now));
    }
  }
  EXPECT_LE(spent, now / kShareParts + kStretch + kNanosPerMs);
  EXPECT_GE(spent, now / kShareParts);
}

TEST(Share, UnusedTimeIsKeptUpToItsLimit) {
  Share share(kShareParts, kStretch);
  const Nanos now = 3600 * kNanosPerSecond;
  ASSERT_TRUE(share.has_some(now));
  share.spend(kStretch);
  EXPECT_FALSE(share.has_some(now));
}

// A thread that did not run for a second while it spent owes no hundred seconds.
TEST(Share, NobodyWaitsLongerThanPartsTimesMost) {
  Share share(kShareParts, kStretch);
  Nanos now = 0;
  ASSERT_TRUE(share.has_some(now));
  share.spend(kNanosPerSecond);
  now += kNanosPerSecond;
  if (!share.has_some(now)) now = share.again_at();
  EXPECT_LE(now, kNanosPerSecond + kShareParts * (kStretch + 1));
  EXPECT_TRUE(share.has_some(now));
}

}  // namespace
}  // namespace rkv::server
