// GroupCache against a model: whatever it finds is what was put last, and its room is bounded.
#include "client/get/group_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"

namespace rkv::client {
namespace {

Group group_of(std::uint64_t content) {
  Group group;
  group.header = content;
  group.slots.fill(content);
  return group;
}

std::uint64_t seed_of_run() {
  const char* given = std::getenv("RKV_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : random_from_kernel();
}

TEST(GroupCache, FindsWhatWasPutAndNothingElse) {
  GroupCache cache(1 << 20);
  const GroupPlace place{3, 17};
  EXPECT_EQ(cache.find(place), nullptr);
  cache.put(place, group_of(1));
  ASSERT_NE(cache.find(place), nullptr);
  EXPECT_EQ(cache.find(place)->header, 1U);
  EXPECT_EQ(cache.find(place.neighbour()), nullptr);
  EXPECT_EQ(cache.find({4, 17}), nullptr);
  cache.put(place, group_of(2));
  EXPECT_EQ(cache.find(place)->header, 2U);
  EXPECT_EQ(cache.statistics().groups, 1U);
  cache.invalidate(place);
  EXPECT_EQ(cache.find(place), nullptr);
  EXPECT_EQ(cache.statistics().groups, 0U);
}

TEST(GroupCache, OffHoldsNothing) {
  GroupCache cache(0);
  cache.put({0, 0}, group_of(1));
  EXPECT_EQ(cache.find({0, 0}), nullptr);
  cache.invalidate({0, 0});
  cache.patch({0, 0}, Slot{1});
  cache.clear();
  EXPECT_EQ(cache.statistics().capacity, 0U);
}

TEST(GroupCache, ClearForgetsAll) {
  GroupCache cache(1 << 20);
  for (std::uint32_t i = 0; i < 1000; ++i)
    cache.put({1, i}, group_of(i));
  cache.clear();
  for (std::uint32_t i = 0; i < 1000; ++i)
    ASSERT_EQ(cache.find({1, i}), nullptr);
  EXPECT_EQ(cache.statistics().groups, 0U);
}

TEST(GroupCache, PatchReplacesTheSlotOfTheFingerprint) {
  GroupCache cache(1 << 16);
  const GroupPlace place{0, 5};
  const Slot before = Slot::of(7, 2, Location::of(1, 100));
  const Slot after = Slot::of(7, 3, Location::of(1, 200));
  Group group;
  group.slots[4] = before.bits;
  cache.put(place, group);
  cache.patch(place, after);
  EXPECT_EQ(cache.find(place)->slots[4], after.bits);

  const Slot other = Slot::of(8, 1, Location::of(1, 300));
  cache.patch(place, other);
  EXPECT_EQ(cache.find(place)->slots[0], other.bits) << "a new fingerprint takes an empty slot";

  Group twins;
  twins.slots[0] = twins.slots[1] = before.bits;
  cache.put(place, twins);
  cache.patch(place, after);
  EXPECT_EQ(cache.find(place), nullptr) << "which of two was meant is not known";
}

TEST(GroupCache, PatchOfAFullGroupWithoutTheFingerprintChangesNothing) {
  GroupCache cache(1 << 16);
  Group group;
  group.slots.fill(Slot::of(9, 1, Location::of(1, 1)).bits);
  cache.put({0, 1}, group);
  cache.patch({0, 1}, Slot::of(7, 1, Location::of(1, 2)));
  EXPECT_EQ(cache.find({0, 1})->slots, group.slots);
}

TEST(GroupCache, RecentlyUsedGroupsOutliveOthers) {
  GroupCache cache(64 << 10);  // 31 sets, 248 groups
  const GroupPlace hot{0, 0};
  cache.put(hot, group_of(42));
  int lost = 0;
  for (std::uint32_t i = 1; i < 20'000; ++i) {
    cache.put({0, i}, group_of(i));
    if (cache.find(hot) == nullptr) {
      ++lost;
      cache.put(hot, group_of(42));
    }
  }
  EXPECT_LT(lost, 100);
  EXPECT_LE(cache.statistics().groups, cache.statistics().capacity);
}

TEST(GroupCache, GrowsUntilNearlyNothingIsDrivenOut) {
  constexpr std::uint32_t kGroups = 3000;
  GroupCache cache(16 << 20);
  std::uint64_t evicted = 0;
  for (int round = 0; round < 4; ++round) {
    for (std::uint32_t i = 0; i < kGroups; ++i) {
      if (cache.find({2, i}) == nullptr) cache.put({2, i}, group_of(i));
      ASSERT_EQ(cache.find({2, i})->header, i);
    }
    const std::uint64_t now = cache.statistics().evictions;
    if (round > 0) {
      EXPECT_LT(now - evicted, kGroups / 100) << "in round " << round;
    }
    evicted = now;
  }
}

TEST(GroupCache, FewGroupsTakeLittleMemory) {
  const auto resident_kib = [] {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      std::uint64_t kib = 0;
      if (word == "RssAnon:" && status >> kib) return kib;
    }
    return std::uint64_t{0};
  };
  const std::uint64_t before = resident_kib();
  ASSERT_GT(before, 0U);
  std::vector<GroupCache> caches;
  for (int i = 0; i < 16; ++i) {
    caches.emplace_back(std::size_t{64} << 20);
    for (std::uint32_t group = 0; group < 100; ++group)
      caches.back().put({0, group}, group_of(group));
  }
  EXPECT_LT(resident_kib() - before, caches.size() * 256) << "25 KiB of groups each";
}

TEST(GroupCacheProperty, NeverFindsWhatWasNotPutLast) {
  const std::uint64_t seed = seed_of_run();
  SCOPED_TRACE("repeat with RKV_SEED=" + std::to_string(seed));
  Random random(seed);
  GroupCache cache(32 << 10);
  std::map<std::uint64_t, std::uint64_t> model;  // place -> content put last
  std::uint64_t found = 0;
  for (std::uint64_t step = 1; step <= 300'000; ++step) {
    const GroupPlace place{static_cast<std::uint32_t>(random.below(3)),
                           static_cast<std::uint32_t>(random.below(100))};
    switch (random.below(16)) {
      case 0:
        cache.invalidate(place);
        model.erase(place.bits());
        break;
      case 1:
        if (random.below(1000) == 0) {
          cache.clear();
          model.clear();
        }
        break;
      case 2:
      case 3:
      case 4:
      case 5:
        cache.put(place, group_of(step));
        model[place.bits()] = step;
        break;
      default:
        if (const Group* group = cache.find(place)) {
          ++found;
          ASSERT_TRUE(model.contains(place.bits()));
          ASSERT_EQ(group->header, model[place.bits()]);
          ASSERT_EQ(group->slots[29], model[place.bits()]);
        }
    }
    ASSERT_LE(cache.statistics().groups, cache.statistics().capacity);
  }
  EXPECT_GT(found, 10'000U);
}

}  // namespace
}  // namespace rkv::client
