// GrowingSets: every hash has one set in use, and a step moves hashes from one set to one new one.
#include "client/growing_sets.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/random.h"

namespace rkv::client {
namespace {

TEST(GrowingSets, AStepMovesFromOneSetToANewOne) {
  for (const std::size_t most : {1U, 2U, 3U, 15U, 16U, 17U, 100U, 1000U}) {
    GrowingSets sets(most);
    std::vector<std::uint64_t> hashes(5000);
    for (std::uint64_t i = 0; i < hashes.size(); ++i)
      hashes[i] = mix64(i);
    std::size_t moved = 0;
    while (sets.may_grow()) {
      std::vector<std::size_t> before;
      for (const std::uint64_t hash : hashes) {
        before.push_back(sets.of(hash));
        ASSERT_LT(before.back(), sets.count());
      }
      const std::size_t count = sets.count();
      const auto [from, to] = sets.grow();
      ASSERT_EQ(sets.count(), count + 1);
      ASSERT_EQ(to, count);
      ASSERT_LT(from, count);
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        const std::size_t now = sets.of(hashes[i]);
        if (now == before[i]) continue;
        ++moved;
        ASSERT_EQ(before[i], from);
        ASSERT_EQ(now, to);
      }
    }
    EXPECT_EQ(sets.count(), most);
    EXPECT_TRUE(most <= 16 || moved > 0);
    sets.reset();
    EXPECT_LE(sets.count(), 16U);
  }
}

TEST(GrowingSets, NoSetHasMoreThanTwiceItsShare) {
  GrowingSets sets(3000);
  while (sets.may_grow())
    sets.grow();
  std::vector<int> of_set(sets.count());
  constexpr int kEach = 100;
  for (std::uint64_t i = 0; i < kEach * sets.count(); ++i)
    ++of_set[sets.of(mix64(i))];
  for (const int hashes : of_set)
    ASSERT_LT(hashes, 5 * kEach / 2);
}

}  // namespace
}  // namespace rkv::client
