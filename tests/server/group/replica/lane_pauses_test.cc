// How long a backup whose lanes fail is left without one.
#include "server/group/replica/lane_pauses.h"

#include <gtest/gtest.h>

#include "server/group/lane/lane_caller.h"

namespace rkv::server {
namespace {

constexpr Nanos kSecond = kNanosPerSecond;

TEST(LanePauses, EachIsTwiceAsLongUpToTheLongest) {
  LanePauses pauses;
  Nanos now = 5 * kSecond;
  EXPECT_TRUE(pauses.are_over("b", now));
  for (const Nanos seconds : {1, 2, 4, 8, 16, 32, 64, 128, 256, 480, 480}) {
    pauses.offered("b", now);
    pauses.not_made("b", now);
    EXPECT_FALSE(pauses.are_over("b", now + (seconds * kSecond) - 1));
    EXPECT_TRUE(pauses.are_over("c", now)) << "another one's";
    now += seconds * kSecond;
    EXPECT_TRUE(pauses.are_over("b", now));
  }
}

// An attempt takes some seconds where a machine is busy.
TEST(LanePauses, AnOfferWithoutAnAnswerIsGivenTheTimeOfAnAttempt) {
  static_assert(LanePauses::kMadeWithin >= 2 * LaneCaller::kConnectMs * kNanosPerMs);
  LanePauses pauses;
  pauses.offered("b", 0);
  EXPECT_FALSE(pauses.are_over("b", LanePauses::kMadeWithin + LanePauses::kFirst - 1));
  EXPECT_TRUE(pauses.are_over("b", LanePauses::kMadeWithin + LanePauses::kFirst));
  pauses.not_made("c", 0);
  EXPECT_TRUE(pauses.are_over("c", 0)) << "nothing was offered";
}

TEST(LanePauses, ALaneThatEndsBeginsThePauseAgain) {
  LanePauses pauses;
  pauses.offered("b", 0);
  pauses.ended("b", kSecond, LanePauses::kLasts);
  EXPECT_FALSE(pauses.are_over("b", LanePauses::kLasts + LanePauses::kFirst - 1));
  EXPECT_TRUE(pauses.are_over("b", LanePauses::kLasts + LanePauses::kFirst));
}

TEST(LanePauses, WhatHasLastedIsForgiven) {
  LanePauses pauses;
  pauses.offered("b", 0);
  pauses.offered("b", LanePauses::kFirst);
  const Nanos end = LanePauses::kFirst + LanePauses::kLasts;
  pauses.ended("b", LanePauses::kFirst, end);
  EXPECT_TRUE(pauses.are_over("b", end));
  pauses.offered("b", end);
  pauses.not_made("b", end);
  EXPECT_TRUE(pauses.are_over("b", end + LanePauses::kFirst)) << "the first pause again";
}

TEST(LanePauses, ThoseOfLongAgoAreForgotten) {
  LanePauses pauses;
  pauses.offered("b", 0);
  pauses.not_made("b", 0);
  const Nanos forgotten = LanePauses::kFirst + LanePauses::kLasts;
  pauses.prune(forgotten - 1);
  pauses.offered("b", forgotten);
  pauses.not_made("b", forgotten);
  EXPECT_FALSE(pauses.are_over("b", forgotten + LanePauses::kFirst)) << "it was still known";
  pauses.prune(forgotten + (2 * LanePauses::kFirst) + LanePauses::kLasts);
  pauses.offered("b", 0);
  pauses.not_made("b", 0);
  EXPECT_TRUE(pauses.are_over("b", LanePauses::kFirst));
}

}  // namespace
}  // namespace rkv::server
