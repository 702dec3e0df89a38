// GrowingSets: every hash has one set in use, and a step moves hashes from one set to two free
// ones.
#include "client/get/growing_sets.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/random.h"

namespace rkv::client {
namespace {

TEST(GrowingSets, AStepMovesFromOneSetToTwoThatWereFree) {
  for (const std::size_t most : {1U, 2U, 3U, 15U, 16U, 31U, 32U, 33U, 100U, 1000U}) {
    GrowingSets sets(most);
    std::vector<std::uint64_t> hashes(5000);
    for (std::uint64_t i = 0; i < hashes.size(); ++i)
      hashes[i] = mix64(i);
    std::size_t moved = 0;
    while (sets.may_split()) {
      std::vector<std::size_t> before;
      for (const std::uint64_t hash : hashes)
        before.push_back(sets.of(hash));
      const std::size_t count = sets.count();
      const auto [from, low, high] = sets.split();
      ASSERT_EQ(sets.count(), count + 1);
      ASSERT_LT(high, most);
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        const std::size_t now = sets.of(hashes[i]);
        if (before[i] == from) {
          ASSERT_TRUE(now == low || now == high) << now;
          moved += now != from ? 1 : 0;
        } else {
          ASSERT_EQ(now, before[i]) << "nothing else moves";
          ASSERT_TRUE(now != low && now != high) << "both were free";
        }
      }
    }
    EXPECT_LE(sets.count(), most);
    EXPECT_GT(sets.count(), most - most / 16 - 1);
    EXPECT_EQ(moved != 0, most >= 32);
    sets.reset();
    EXPECT_LT(sets.count(), 32U);
  }
}

TEST(GrowingSets, WithAllSetsEachHasItsShare) {
  GrowingSets sets(3000);
  while (sets.may_split())
    sets.split();
  std::vector<int> of_set(sets.count());
  constexpr int kEach = 100;
  for (std::uint64_t i = 0; i < kEach * sets.count(); ++i)
    ++of_set[sets.of(mix64(i))];
  for (const int hashes : of_set)
    ASSERT_LT(hashes, 3 * kEach / 2);
}

}  // namespace
}  // namespace rkv::client
