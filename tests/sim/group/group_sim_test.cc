// A replicated group in simulation: whatever is paused, killed or cut off, the answers agree on one
// history, and the group serves again. Each rule that is left out is noticed.
//
// RKV_GROUP_SEEDS: how many seeds to run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/sim/group/group_plan.h"

namespace rkv::sim {
namespace {

std::uint64_t seeds() {
  const char* const given = std::getenv("RKV_GROUP_SEEDS");
  return given == nullptr ? 200 : std::strtoull(given, nullptr, 10);
}

TEST(GroupSim, AnswersAgreeOnOneHistory) {
  GroupVerdict all;
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    const GroupVerdict one = run_group({.seed = seed});
    EXPECT_FALSE(one.wrong) << "seed " << seed << ": " << one.wrong;
    EXPECT_FALSE(one.stuck) << "seed " << seed << ": " << one.stuck;
    all.add(one);
  }
  fmt::print("{} writes, {} GETs, {} terms, {} joins, {} copies, {} hand-overs\n", all.writes,
             all.gets, all.terms, all.joins, all.copies, all.handed_over);
  EXPECT_GT(all.writes, 100 * seeds());
  EXPECT_GT(all.gets, 100 * seeds());
  EXPECT_GT(all.terms, 3 * seeds());
  EXPECT_GT(all.joins, 5 * seeds());
  EXPECT_GT(all.copies, seeds() / 20);
  EXPECT_GT(all.handed_over, seeds());
  EXPECT_GT(all.expired, 100 * seeds());
  EXPECT_GT(all.revoked, 5 * seeds());
}

TEST(GroupSim, ARunIsAFunctionOfItsSeed) {
  EXPECT_EQ(run_group({.seed = 5}).trace, run_group({.seed = 5}).trace);
  EXPECT_NE(run_group({.seed = 5}).trace, run_group({.seed = 6}).trace);
}

class GroupRule : public testing::TestWithParam<std::pair<BrokenRule, const char*>> {};

TEST_P(GroupRule, IsNoticedIfItIsLeftOut) {
  constexpr std::uint64_t kMost = 400;
  std::uint64_t seed = 1;
  while (seed <= kMost && run_group({.seed = seed, .broken = GetParam().first}).wrong == nullptr)
    ++seed;
  EXPECT_LE(seed, kMost);
  fmt::print("noticed by seed {}\n", seed);
}

INSTANTIATE_TEST_SUITE_P(
    , GroupRule,
    testing::Values(std::pair{BrokenRule::kActsAtOnce, "ActsAtOnce"},
                    std::pair{BrokenRule::kNoTick, "NoTick"},
                    std::pair{BrokenRule::kTickIgnoresLease, "TickIgnoresLease"},
                    std::pair{BrokenRule::kShowsAboveMark, "ShowsAboveMark"},
                    std::pair{BrokenRule::kAnswersAtOnce, "AnswersAtOnce"},
                    std::pair{BrokenRule::kAdmitsAtOnce, "AdmitsAtOnce"},
                    std::pair{BrokenRule::kDiskAboveMark, "DiskAboveMark"},
                    std::pair{BrokenRule::kAnswersUnwritten, "AnswersUnwritten"},
                    std::pair{BrokenRule::kHandsOverEarly, "HandsOverEarly"},
                    std::pair{BrokenRule::kTicksOn, "TicksOn"},
                    std::pair{BrokenRule::kFollowsWallClock, "FollowsWallClock"},
                    std::pair{BrokenRule::kTimeByOwnWall, "TimeByOwnWall"},
                    std::pair{BrokenRule::kTimeBeginsAhead, "TimeBeginsAhead"},
                    std::pair{BrokenRule::kEtcdComparesNothing, "EtcdComparesNothing"},
                    std::pair{BrokenRule::kLosesRevoked, "LosesRevoked"},
                    std::pair{BrokenRule::kAnswersRevoked, "AnswersRevoked"},
                    std::pair{BrokenRule::kJoinsUnreached, "JoinsUnreached"}),
    [](const auto& each) { return std::string(each.param.second); });

}  // namespace
}  // namespace rkv::sim
