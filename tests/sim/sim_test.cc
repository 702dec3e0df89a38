// The simulation itself: a seed repeats exactly, and the model notices faults that no design
// survives.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/log.h"
#include "tests/sim/run_seed.h"

namespace rkv::sim {
namespace {

class Simulation : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kOff); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }
};

TEST_F(Simulation, ASeedRepeatsExactlyWhateverRanBefore) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const Outcome first = run_seed(seed);
    ASSERT_EQ(first.violation, std::nullopt) << "seed " << seed;
    (void)run_seed(seed + 100);
    const Outcome second = run_seed(seed);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.time, second.time);
    EXPECT_NE(first.trace_hash, run_seed(seed + 200).trace_hash);
  }
}

// The number of the first 20 seeds that notice.
int caught(Canary canary) {
  int seeds = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    seeds += run_seed(seed, canary).violation ? 1 : 0;
  return seeds;
}

TEST_F(Simulation, ATornRecordWithAFittingChecksumIsNoticed) {
  EXPECT_GE(caught(Canary::kForgedRecords), 2);
}
TEST_F(Simulation, AReadAnsweredWithOldBytesIsNoticed) {
  EXPECT_GE(caught(Canary::kStaleReads), 10);
}
TEST_F(Simulation, ADiskThatOnlyClaimsToSyncIsNoticed) {
  EXPECT_GE(caught(Canary::kLyingDisk), 2);
}

TEST_F(Simulation, ADiskThatShowsOldRecordsIsNoticed) {
  EXPECT_GE(caught(Canary::kStaleDisk), 2);
}

TEST_F(Simulation, ADiskThatLeavesRecordsOutIsNoticed) {
  EXPECT_GE(caught(Canary::kHidingDisk), 10);
}
TEST_F(Simulation, AServerThatRemovesNothingThatHasExpiredIsNoticed) {
  EXPECT_GE(caught(Canary::kNoExpiry), 5);
}

TEST_F(Simulation, AFullDiskThatDropsWritesIsNoticed) {
  EXPECT_GE(caught(Canary::kDroppingDisk), 5);
}
TEST_F(Simulation, AServerThatTakesNoWritesWhenThereIsRoomAgainIsNoticed) {
  EXPECT_GE(caught(Canary::kFullForGood), 5);
}
TEST_F(Simulation, ADiskThatMixesLargeValuesIsNoticed) {
  EXPECT_GE(caught(Canary::kMixedValues), 5);
}
TEST_F(Simulation, AServerThatBelievesAClockThatIsAheadForAMomentIsNoticed) {
  EXPECT_GE(caught(Canary::kHastyClock), 3);
}
TEST_F(Simulation, AServerThatNeverFollowsTheClockIsNoticed) {
  EXPECT_GE(caught(Canary::kDeafClock), 3);
}

TEST_F(Simulation, AFlushThatLeavesWhatCellsCountBehindIsNoticed) {
  EXPECT_GE(caught(Canary::kNoSweep), 5);
}
TEST_F(Simulation, AnAdditionLostWhenACounterLeavesItsCellIsNoticed) {
  EXPECT_GE(caught(Canary::kBlindSeal), 3);
}

TEST_F(Simulation, OutcomesThatAreHandedToNobodyAreNoticed) {
  EXPECT_GE(caught(Canary::kForgetful), 15);
}
TEST_F(Simulation, AWriteThatIsAppliedTwiceIsNoticed) {
  EXPECT_GE(caught(Canary::kAppliesAgain), 7);
}
TEST_F(Simulation, TheOutcomeOfAnotherWriteIsNoticed) {
  EXPECT_GE(caught(Canary::kWrongLane), 4);
}

// A seed takes ten times as long with a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 100;
#else
constexpr std::uint64_t kSeeds = 500;
#endif
// `count` per 500 seeds, scaled to kSeeds.
constexpr std::uint64_t share_of(std::uint64_t count) {
  return count * kSeeds / 500;
}

// A fault that never happens is not tested.
TEST_F(Simulation, EveryKindOfTroubleHappens) {
  Outcome sum;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome one = run_seed(seed);
    ASSERT_EQ(one.violation, std::nullopt) << "./run simulate --seeds 1 --first-seed " << seed;
    sum.restarts += one.restarts;
    sum.stashed += one.stashed;
    sum.splits += one.splits;
    sum.promoted += one.promoted;
    sum.evicted += one.evicted;
    sum.expired += one.expired;
    sum.clock_steps += one.clock_steps;
    sum.large_puts += one.large_puts;
    sum.full_refusals += one.full_refusals;
    sum.network.cuts += one.network.cuts;
    sum.network.full_send_queues += one.network.full_send_queues;
    sum.network.waits_for_receives += one.network.waits_for_receives;
    sum.clients.tears_detected += one.clients.tears_detected;
    sum.clients.cache_hits += one.clients.cache_hits;
    sum.clients.two_sided_gets += one.clients.two_sided_gets;
    sum.clients.reconnects += one.clients.reconnects;
    sum.clients.busy_answers += one.clients.busy_answers;
    sum.clients.atomics += one.clients.atomics;
    sum.clients.outcomes_asked += one.clients.outcomes_asked;
    sum.clients.outcomes_recovered += one.clients.outcomes_recovered;
  }
  EXPECT_GT(sum.restarts, share_of(50));
  EXPECT_GT(sum.stashed, 0U);
  EXPECT_GT(sum.splits, share_of(50));
  EXPECT_GT(sum.promoted, share_of(200));
  EXPECT_GT(sum.evicted, share_of(200));
  EXPECT_GT(sum.expired, share_of(200));
  EXPECT_GT(sum.clock_steps, share_of(50));
  EXPECT_GT(sum.large_puts, share_of(500));
  EXPECT_GT(sum.full_refusals, share_of(50));
  EXPECT_GT(sum.network.cuts, share_of(500));
  EXPECT_GT(sum.network.full_send_queues, share_of(500));
  EXPECT_GT(sum.network.waits_for_receives, share_of(50));
  EXPECT_GT(sum.clients.tears_detected, share_of(50));
  EXPECT_GT(sum.clients.cache_hits, share_of(1000));
  EXPECT_GT(sum.clients.two_sided_gets, share_of(100));
  EXPECT_GT(sum.clients.reconnects, share_of(200));
  EXPECT_GT(sum.clients.busy_answers, share_of(5));
  EXPECT_GT(sum.clients.atomics, share_of(2000));
  EXPECT_GT(sum.clients.outcomes_asked, share_of(200));
  EXPECT_GT(sum.clients.outcomes_recovered, share_of(100));
}

}  // namespace
}  // namespace rkv::sim
