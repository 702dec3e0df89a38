// Barriers on real verbs, between threads that are nodes. A checker watches the promise of a
// barrier; a barrier that does not wait proves that the checker notices.
//
// Mutations tried: each of these changes to barrier.cc makes a test here fail, or never end.
//   1  a round does not wait for its own writes           MayBeEnteredWithinAScope
//   2  any counter is accepted, or only an exact match    NobodyLeavesBefore...
//      a counter is accepted without its complement       ACounterWithoutItsComplement...
//      an error does not poison                           WhoeverIsMissing...
#include "rkv/rdma/group/barrier.h"

#include <atomic>
#include <deque>

#include "common/random.h"
#include "rdma/extras/group/barrier_state.h"
#include "world.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr BarrierKind kKinds[] = {BarrierKind::kCentralized, BarrierKind::kTree,
                                  BarrierKind::kDissemination};
constexpr int kShortMs = 100;

// Records which members have entered each round; leaving while a member is missing is a violation.
class Checker {
 public:
  explicit Checker(std::size_t rounds) : entered_(rounds) {}
  void enter(std::size_t round) { ++entered_[round]; }
  void leave(std::size_t round, std::size_t members) {
    if (entered_[round] != members) ++violations_;
  }
  std::size_t violations() const { return violations_; }

 private:
  std::deque<std::atomic<std::size_t>> entered_;
  std::atomic<std::size_t> violations_ = 0;
};

// Returns the same members for every rank that asks for the same round.
std::vector<std::uint32_t> members_of(std::uint64_t round, std::uint32_t size) {
  Random random(round * 7919 + size);
  std::vector<std::uint32_t> out;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    if (random.below(3) != 0) out.push_back(rank);
  }
  return out;
}

void linger(Random& random) {
  if (random.below(8) != 0) return;
  for (std::uint64_t i = random.below(20); i != 0; --i)
    std::this_thread::yield();
}

TEST(Barriers, NobodyLeavesBeforeAllHaveEntered) {
  constexpr std::size_t kRounds = 200;
  for (const std::uint32_t size : {1U, 2U, 3U, 6U}) {
    for (const BarrierKind kind : kKinds) {
      World world(size);
      Checker checker(kRounds);
      world.run([&](Node& node) {
        Barrier barrier = need(Barrier::create(node, kind, World::late()));
        Random random(node.rank());
        for (std::size_t round = 0; round < kRounds; ++round) {
          linger(random);
          checker.enter(round);
          need(barrier.wait(World::late()));
          checker.leave(round, size);
        }
      });
      EXPECT_EQ(checker.violations(), 0U) << size;
    }
  }
}

TEST(Barriers, OfSubgroupsFollowEachOtherInAnyMixture) {
  constexpr std::size_t kRounds = 300;
  constexpr std::uint32_t kSize = 5;
  for (const BarrierKind kind : kKinds) {
    World world(kSize);
    Checker checker(kRounds);
    world.run([&](Node& node) {
      Barrier barrier = need(Barrier::create(node, kind, World::late()));
      Random random(node.rank());
      for (std::size_t round = 0; round < kRounds; ++round) {
        const std::vector<std::uint32_t> members = members_of(round, kSize);
        if (!std::ranges::binary_search(members, node.rank())) continue;
        linger(random);
        checker.enter(round);
        need(round % 2 == 0 ? barrier.wait(members, World::late())
                            : barrier.wait_unchecked(members, World::late()));
        checker.leave(round, members.size());
      }
    });
    EXPECT_EQ(checker.violations(), 0U);
  }
}

// Rank 1 does not enter before rank 0 has left: in a correct barrier rank 0 would never leave.
TEST(Barriers, ABrokenOneIsNoticed) {
  for (const BarrierKind kind : kKinds) {
    World world(2);
    Checker checker(1);
    std::atomic<bool> left = false;
    world.run([&](Node& node) {
      Barrier barrier = need(Barrier::create(node, kind, World::late()));
      if (node.rank() == 0) {
        detail::BarrierAccess::state(barrier).skip_awaits = true;
      } else {
        left.wait(false);
      }
      checker.enter(0);
      need(barrier.wait(World::late()));
      checker.leave(0, 2);
      left = true;
      left.notify_all();
      need(node.exchange().meet(World::late()));  // no rank ends before the other's write is
                                                  // acknowledged
    });
    EXPECT_EQ(checker.violations(), 1U);
  }
}

// Half of a slot has arrived: the awaited counter without its complement.
TEST(Barriers, ACounterWithoutItsComplementIsNotBelieved) {
  World world(2);
  world.run([](Node& node) {
    Barrier barrier = need(Barrier::create(node, BarrierKind::kDissemination, World::late()));
    if (node.rank() == 0) {
      std::byte* const slot =
          detail::BarrierAccess::state(barrier).region.bytes().data() + detail::kSlotBytes;
      store_le<std::uint64_t>(slot, 1);
      EXPECT_EQ(code_of(barrier.wait(soon(kShortMs))), Code::kTimeout);
    }
    need(node.exchange().meet(World::late()));
  });
}

TEST(Barriers, WhoeverIsMissingIsATimeoutAndPoisons) {
  for (const BarrierKind kind : kKinds) {
    World world(3);
    world.run([&](Node& node) {
      Barrier barrier = need(Barrier::create(node, kind, World::late()));
      need(barrier.wait(World::late()));
      if (node.rank() != 2) {
        const Status missed = barrier.wait(soon(kShortMs));
        EXPECT_EQ(code_of(missed), Code::kTimeout);
        EXPECT_TRUE(barrier.poisoned());
        EXPECT_EQ(code_of(barrier.wait(World::late())), Code::kDisconnected);
      } else {
        EXPECT_FALSE(barrier.poisoned());
      }
      need(node.exchange().meet(World::late()));
      // The channels still work, so a new barrier works.
      Barrier second = need(Barrier::create(node, kind, World::late()));
      need(second.wait(World::late()));
    });
  }
}

TEST(Barriers, MembersThatCannotBeAreRefusedAndNothingIsPoisoned) {
  World world(2);
  world.run([](Node& node) {
    Barrier barrier = need(Barrier::create(node, BarrierKind::kTree, World::late()));
    const std::array<std::uint32_t, 2> unordered = {1, 0};
    const std::array<std::uint32_t, 1> other = {1 - node.rank()};
    EXPECT_EQ(code_of(barrier.wait(unordered, soon())), Code::kInvalidArgument);
    EXPECT_EQ(code_of(barrier.wait(other, soon())), Code::kInvalidArgument);
    EXPECT_FALSE(barrier.poisoned());
    const std::array<std::uint32_t, 1> alone = {node.rank()};
    need(barrier.wait(alone, soon()));
    need(barrier.wait(World::late()));
  });
}

// Data written before the barrier is visible after it.
TEST(Barriers, WhatWasWrittenBeforeIsThereAfterwards) {
  constexpr std::uint32_t kSize = 4;
  for (const BarrierKind kind : kKinds) {
    World world(kSize);
    world.run([&](Node& node) {
      MemoryRegion region = need(MemoryRegion::allocate(node.domain(), 4096, kEverything));
      const std::vector<RemoteSpan> all = need(node.share(region.remote(), World::late()));
      Barrier barrier = need(Barrier::create(node, kind, World::late()));
      for (std::uint64_t round = 1; round <= 50; ++round) {
        store_le<std::uint64_t>(region.bytes().data() + 2048, round);
        for (std::uint32_t to = 0; to < kSize; ++to) {
          if (to == node.rank()) continue;
          need(node.channel(to).write(region.local(2048, 8),
                                      *all[to].subspan(std::uint64_t{8} * node.rank(), 8),
                                      World::late()));
        }
        need(barrier.wait(World::late()));
        for (std::uint32_t from = 0; from < kSize; ++from) {
          if (from == node.rank()) continue;
          EXPECT_EQ(load_le<std::uint64_t>(region.bytes().data() + std::size_t{8} * from), round);
        }
        need(barrier.wait(World::late()));
      }
    });
  }
}

// A barrier within a scope does not affect the scope's own work, in strict scopes either.
TEST(Barriers, MayBeEnteredWithinAScope) {
  World world(2);
  world.run([](Node& node) {
    MemoryRegion region = need(MemoryRegion::allocate(node.domain(), 4096, kEverything));
    Barrier barrier = need(Barrier::create(node, BarrierKind::kDissemination, World::late()));
    Channel& channel = node.channel(1 - node.rank());
    const auto out = channel.strict_scope(World::late(), [&](Scope& s) {
      Pending got = s.receive(region.local(0, 64));
      need(barrier.wait(World::late()));
      need(s.send(region.local(64, 8)).wait());
      EXPECT_EQ(need(got.wait()).bytes, 8U);
    });
    need(out.operations);
    need(node.exchange().meet(World::late()));
  });
}

// The scope has used all send slots of the channel: the barrier waits for a free one.
TEST(Barriers, WaitForRoomThatAScopeHasTaken) {
  World world(2);
  std::atomic<bool> full = false;
  const auto body = [&](Node& node) {
    MemoryRegion region = need(MemoryRegion::allocate(node.domain(), 4096, kEverything));
    Barrier barrier = need(Barrier::create(node, BarrierKind::kCentralized, World::late()));
    Channel& channel = node.channel(1 - node.rank());
    if (node.rank() == 1) {
      // Outstanding until rank 0 has posted a receive.
      const auto out = channel.scope(World::late(), [&](Scope& s) {
        Pending sent = s.send(region.local(0, 8));
        full = true;
        full.notify_all();
        need(barrier.wait(World::late()));
        need(sent.wait());
      });
      need(out.operations);
    } else {
      full.wait(false);
      EXPECT_EQ(need(channel.receive(region.local(0, 64), World::late())).bytes, 8U);
      need(barrier.wait(World::late()));
    }
    need(node.exchange().meet(World::late()));
  };
  world.run(body, {.channel = {.sends = 1, .receives = 1}});
}

}  // namespace
}  // namespace rkv::rdma
