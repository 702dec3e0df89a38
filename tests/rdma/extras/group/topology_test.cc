// Barriers as graphs of messages: for many numbers of members, each member that has run its steps
// knows that all members have entered.
#include <gtest/gtest.h>

#include <bitset>
#include <map>
#include <optional>

#include "rkv/rdma/group/barrier.h"

namespace rkv::rdma {
namespace {

using Action = BarrierStep::Action;
constexpr BarrierKind kKinds[] = {BarrierKind::kCentralized, BarrierKind::kTree,
                                  BarrierKind::kDissemination};
constexpr std::size_t kMost = 600;
using Members = std::bitset<kMost>;

struct Left {
  std::uint32_t member;
  std::uint32_t step;
};

struct Outcome {
  std::string wrong;            // with the messages themselves
  bool everybody_knows = true;  // each member knows when it leaves that all have entered
};

// A member knows what it was sent before. That does not depend on the order of execution, so one
// schedule represents all. `left_out`: a step that its member skips.
Outcome walk(BarrierKind kind, std::uint32_t members, std::optional<Left> left_out = {}) {
  std::vector<Members> knows(members);
  std::vector<std::uint32_t> next(members, 0);
  std::map<std::pair<std::uint32_t, std::uint32_t>, Members> messages;
  std::uint32_t finished = 0;
  for (std::uint32_t i = 0; i < members; ++i)
    knows[i].set(i);
  for (bool moved = true; moved;) {
    moved = false;
    finished = 0;
    for (std::uint32_t self = 0; self < members; ++self) {
      const std::uint32_t steps = barrier_step_count(kind, members, self);
      for (; next[self] < steps; ++next[self]) {
        const BarrierStep step = barrier_step(kind, members, self, next[self]);
        if (step.peer >= members || step.peer == self) return {.wrong = "a message to nobody"};
        if (left_out && left_out->member == self && left_out->step == next[self]) continue;
        if (step.action == Action::kSend) {
          if (!messages.emplace(std::pair(self, step.peer), knows[self]).second) {
            return {.wrong = "two messages in one slot"};
          }
        } else {
          const auto found = messages.find({step.peer, self});
          if (found == messages.end()) break;
          knows[self] |= found->second;
          found->second.reset();  // consumed
        }
        moved = true;
      }
      finished += next[self] == steps ? 1 : 0;
    }
  }
  Outcome out;
  if (finished != members) out.wrong = "a dead end";
  for (const auto& [pair, told] : messages) {
    if (out.wrong.empty() && told.any()) out.wrong = "a message that nobody awaits";
  }
  for (const Members& one : knows)
    out.everybody_knows = out.everybody_knows && one.count() == members;
  return out;
}

TEST(BarrierTopology, EverybodyLeavesKnowingThatEverybodyHasEntered) {
  for (const BarrierKind kind : kKinds) {
    for (std::uint32_t members = 1; members <= 130; ++members) {
      const Outcome out = walk(kind, members);
      ASSERT_EQ(out.wrong, "") << members;
      ASSERT_TRUE(out.everybody_knows) << members;
    }
    const Outcome many = walk(kind, kMost);
    EXPECT_EQ(many.wrong, "");
    EXPECT_TRUE(many.everybody_knows);
  }
}

// Every step is needed, and the check above notices each missing step.
TEST(BarrierTopology, WithoutOneAwaitSomebodyLeavesTooEarly) {
  for (const BarrierKind kind : kKinds) {
    for (std::uint32_t members = 2; members <= 17; ++members) {
      for (std::uint32_t self = 0; self < members; ++self) {
        for (std::uint32_t i = 0; i < barrier_step_count(kind, members, self); ++i) {
          const bool await = barrier_step(kind, members, self, i).action == Action::kAwait;
          const Outcome out = walk(kind, members, Left{.member = self, .step = i});
          if (await) {
            EXPECT_FALSE(out.everybody_knows) << members << " " << self << " " << i;
          } else {
            EXPECT_EQ(out.wrong, "a dead end") << members << " " << self << " " << i;
          }
        }
      }
    }
  }
}

TEST(BarrierTopology, CostsWhatItSays) {
  for (std::uint32_t members = 2; members <= 300; ++members) {
    for (std::uint32_t self = 0; self < members; ++self) {
      EXPECT_LE(barrier_step_count(BarrierKind::kTree, members, self), 6U);
      EXPECT_EQ(barrier_step_count(BarrierKind::kDissemination, members, self),
                2 * dissemination_rounds(members));
    }
    EXPECT_EQ(barrier_step_count(BarrierKind::kCentralized, members, 0), 2 * (members - 1));
  }
  constexpr std::pair<std::uint32_t, std::uint32_t> kRounds[] = {
      {1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}, {9, 4}, {4096, 12}};
  for (const auto& [members, rounds] : kRounds)
    EXPECT_EQ(dissemination_rounds(members), rounds);
}

TEST(BarrierTopology, OutsideOfItIsABug) {
  EXPECT_DEATH(std::ignore = barrier_step_count(BarrierKind::kTree, 3, 3), "below the number");
  EXPECT_DEATH(std::ignore = barrier_step(BarrierKind::kTree, 1, 0, 0), "no such step");
}

TEST(BarrierMembers, OfEverySubgroupAreAcceptedByThoseInItAlone) {
  constexpr std::uint32_t kSize = 8;
  for (std::uint32_t bits = 0; bits < 1U << kSize; ++bits) {
    std::vector<std::uint32_t> members;
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      if ((bits >> rank & 1) != 0) members.push_back(rank);
    }
    for (std::uint32_t self = 0; self < kSize; ++self) {
      EXPECT_EQ(check_members(members, self, kSize).has_value(), (bits >> self & 1) != 0);
      // The last rank does not exist in a smaller group.
      EXPECT_EQ(check_members(members, self, kSize - 1).has_value(),
                (bits >> self & 1) != 0 && (bits >> (kSize - 1)) == 0);
    }
  }
}

TEST(BarrierMembers, OutOfOrderOrTwiceAreRefused) {
  const auto text = [](std::vector<std::uint32_t> members) {
    const Status status = check_members(members, 1, 8);
    return status ? std::string() : std::string(status.error().text);
  };
  EXPECT_EQ(text({1, 2, 3}), "");
  EXPECT_NE(text({2, 1}).find("not in order"), std::string::npos);
  EXPECT_NE(text({1, 1}).find("twice"), std::string::npos);
  EXPECT_NE(text({1, 8}).find("not a rank"), std::string::npos);
  EXPECT_NE(text({2, 3}).find("not a member"), std::string::npos);
  EXPECT_NE(text({}).find("not a member"), std::string::npos);
}

}  // namespace
}  // namespace rkv::rdma
