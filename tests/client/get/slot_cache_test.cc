// SlotCache: what it finds is what was put last, for that hash; its room is bounded.
#include "client/get/slot_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "common/random.h"

namespace rkv::client {
namespace {

Slot slot_of(std::uint64_t number) {
  return Slot::of(7, 2, Location::of(1, static_cast<std::uint32_t>(number)));
}

TEST(SlotCache, FindsWhatWasPutAndNothingElse) {
  SlotCache cache(1 << 16);
  EXPECT_TRUE(cache.find(KeyHash(1)).empty());
  cache.put(KeyHash(1), slot_of(1));
  EXPECT_EQ(cache.find(KeyHash(1)), slot_of(1));
  EXPECT_TRUE(cache.find(KeyHash(2)).empty()) << "of the same set";
  cache.put(KeyHash(1), slot_of(2));
  EXPECT_EQ(cache.find(KeyHash(1)), slot_of(2));
  cache.forget(KeyHash(1));
  EXPECT_TRUE(cache.find(KeyHash(1)).empty());
  cache.put(KeyHash(1), slot_of(3));
  cache.clear();
  EXPECT_TRUE(cache.find(KeyHash(1)).empty());
}

TEST(SlotCache, ANewOneTakesAFreePlaceFirst) {
  SlotCache cache(64);  // one set
  const std::vector<std::uint64_t> hashes{1, 2, 3, 4};
  for (const std::uint64_t hash : hashes)
    cache.put(KeyHash(hash), slot_of(hash));
  for (const std::uint64_t hash : hashes)
    EXPECT_EQ(cache.find(KeyHash(hash)), slot_of(hash));
  cache.forget(KeyHash(3));
  cache.put(KeyHash(5), slot_of(5));
  for (const std::uint64_t hash : {1, 2, 4, 5})
    EXPECT_FALSE(cache.find(KeyHash(hash)).empty()) << hash;
}

TEST(SlotCache, OffHoldsNothing) {
  SlotCache cache(0);
  cache.put(KeyHash(1), slot_of(1));
  cache.forget(KeyHash(1));
  cache.clear();
  EXPECT_TRUE(cache.find(KeyHash(1)).empty());
}

TEST(SlotCache, WhatIsReadOftenOutlivesWhatIsReadOnce) {
  SlotCache cache(64);  // one set
  for (const std::uint64_t hash : {1, 2, 3}) {
    cache.put(KeyHash(hash), slot_of(hash));
    for (int i = 0; i < 4; ++i)
      ASSERT_FALSE(cache.find(KeyHash(hash)).empty());
  }
  for (std::uint64_t hash = 10; hash < 1000; ++hash)
    cache.put(KeyHash(hash), slot_of(hash));
  for (const std::uint64_t hash : {1, 2, 3})
    EXPECT_EQ(cache.find(KeyHash(hash)), slot_of(hash));
}

TEST(SlotCache, GrowsUntilNearlyNothingIsDrivenOut) {
  constexpr std::uint64_t kKeys = 10'000;
  SlotCache cache(8 << 20);
  for (int round = 0; round < 4; ++round) {
    std::uint64_t lost = 0;
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const KeyHash hash(mix64(key));
      if (cache.find(hash).empty()) {
        ++lost;
        cache.put(hash, slot_of(key));
      }
      ASSERT_EQ(cache.find(hash), slot_of(key));
    }
    if (round > 0) {
      EXPECT_LT(lost, kKeys / (round == 1 ? 40 : 100)) << "in round " << round;
    }
  }
}

TEST(SlotCache, AgreesWithAModel) {
  const std::uint64_t seed = random_from_kernel();
  SCOPED_TRACE(seed);
  Random random(seed);
  SlotCache cache(16 << 10);  // full soon, after many splits
  std::map<std::uint64_t, Slot> model;
  std::uint64_t found = 0;
  for (int step = 0; step < 200'000; ++step) {
    const std::uint64_t hash = mix64(random.below(2000));
    switch (random.below(4)) {
      case 0:
        model[hash] = slot_of(static_cast<std::uint64_t>(step));
        cache.put(KeyHash(hash), model[hash]);
        break;
      case 1:
        model.erase(hash);
        cache.forget(KeyHash(hash));
        break;
      default:
        const Slot slot = cache.find(KeyHash(hash));
        if (slot.empty()) break;
        ASSERT_TRUE(model.contains(hash) && model[hash] == slot) << step;
        ++found;
    }
  }
  EXPECT_GT(found, 10'000U) << "a third of the keys have room";
}

}  // namespace
}  // namespace rkv::client
