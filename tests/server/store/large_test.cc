// Large values: had in two steps, proved by a digest, moved always.
#include <gtest/gtest.h>

#include <map>

#include "common/random.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

using testing::Answer;

MemoryOptions roomy() {
  MemoryOptions options = small_memory();
  options.memory_bytes = std::size_t{256} << 20;
  return options;
}

std::string patterned(std::uint64_t seed, std::size_t length) {
  std::string value(length, '\0');
  Random random(seed);
  for (char& c : value)
    c = static_cast<char>(random());
  return value;
}

TEST(Large, ReadersFindValuesOfEverySize) {
  StoreUnderTest t(roomy());
  std::uint64_t seed = 0;
  for (const std::size_t size : {kMaxInlineBytes, kMaxInlineBytes + 1, std::size_t{1} << 20,
                                 kMaxValueBytes - 1, kMaxValueBytes}) {
    for (const std::string& key : {std::string("k"), std::string(kMaxKeyBytes, 'K')}) {
      const std::string value = patterned(++seed, size);
      ASSERT_TRUE(t.put(key, value));
      const Answer answer = t.read(key);
      ASSERT_EQ(answer.kind, Answer::Kind::kValue) << size;
      EXPECT_TRUE(answer.value == value) << size;
    }
  }
  EXPECT_EQ(t.store.stats().records, 2U);
  EXPECT_EQ(t.store.stats().puts_in_place, 0U);
}

TEST(Large, TheServerSaysWhereOneIs) {
  StoreUnderTest t(roomy());
  const auto put = t.put("k", patterned(1, 1'000'000));
  const auto got = t.store.get(as_bytes("k"), t.buffer);
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->large);
  EXPECT_EQ(got->slot, put->slot);
  EXPECT_EQ(got->version, put->version);
  EXPECT_EQ(got->value_length, 1'000'000U);
  ASSERT_TRUE(t.put("k", "short"));
  EXPECT_FALSE(t.store.get(as_bytes("k"), t.buffer)->large);
}

TEST(Large, OneOnItsWayIsSeenByNobody) {
  StoreUnderTest t(roomy());
  ASSERT_TRUE(t.put("k", "old"));
  const std::string value = patterned(2, 300'000);
  auto large = t.store.large_records().begin(as_bytes("k"), value.size(), {});
  ASSERT_TRUE(large);
  EXPECT_EQ(large->local_key, 1U) << "the adapter's key of plain memory";
  for (std::size_t at = 0; at < value.size(); at += 50'000) {
    std::memcpy(large->value.data() + at, value.data() + at,
                std::min<std::size_t>(50'000, value.size() - at));
    EXPECT_EQ(t.read("k").value, "old");
    EXPECT_EQ(t.get("k"), "old");
  }
  const std::uint64_t digest = value_digest(as_bytes("k"), large->value, t.memory->epoch());
  ASSERT_TRUE(t.store.large_records().finish(std::move(*large), as_bytes("k"), digest, {}));
  EXPECT_TRUE(t.read("k").value == value);
}

TEST(Large, WhatIsCancelledOrRefusedGivesEverythingBack) {
  StoreUnderTest t(roomy(), std::move(*CommitLog::create(std::size_t{32} << 20)));
  ASSERT_TRUE(t.put("k", "old"));
  const std::uint64_t used = t.store.stats().data_bytes_used;
  const std::uint64_t queued = t.log->bytes_queued();
  const PutOptions absent{.condition = Condition::kIfAbsent};
  for (int i = 0; i < 50; ++i) {  // many times what the queue holds
    auto large = t.store.large_records().begin(as_bytes("k"), kMaxValueBytes, absent);
    ASSERT_TRUE(large) << to_string(large.error());
    ASSERT_NE(large->copy, nullptr);
    if (i % 2 == 0) {
      t.store.large_records().cancel(std::move(*large));
    } else {
      const auto done = t.store.large_records().finish(std::move(*large), as_bytes("k"), 1, absent);
      EXPECT_EQ(done.error().code, Code::kConflict);
    }
    t.clock.advance(kNanosPerMs * 1000);
    t.grow();
  }
  EXPECT_EQ(t.store.stats().data_bytes_used, used);
  EXPECT_EQ(t.log->bytes_queued(), queued);
  EXPECT_EQ(t.read("k").value, "old");
}

TEST(Large, TwoOfThemFillAQueueOfTheirSize) {
  StoreUnderTest t(roomy(), std::move(*CommitLog::create(std::size_t{32} << 20)));
  auto first = t.store.large_records().begin(as_bytes("a"), kMaxValueBytes, {});
  ASSERT_TRUE(first);
  const auto second = t.store.large_records().begin(as_bytes("b"), kMaxValueBytes, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kBusy);
  t.store.large_records().cancel(std::move(*first));
}

TEST(Large, AQueueThatCanNeverHoldOneSaysSo) {
  StoreUnderTest t(roomy(), std::move(*CommitLog::create(std::size_t{1} << 20)));
  const auto large = t.store.large_records().begin(as_bytes("a"), kMaxValueBytes, {});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kTooLarge);
}

TEST(Large, AStoreWhoseExtentsAreShorterSaysSo) {
  StoreUnderTest t(small_memory());
  const auto put = t.put("k", std::string(kMaxValueBytes, 'v'));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kTooLarge);
  EXPECT_EQ(t.store.stats().data_bytes_used, 0U);
}

TEST(Large, LoadedFromDisk) {
  StoreUnderTest t(roomy());
  const std::string value = patterned(3, 2'000'001);
  ASSERT_TRUE(t.store.loader().load({.version = Version::of(2, 9),
                                     .expiry_ms = 77,
                                     .key = as_bytes("k"),
                                     .value = as_bytes(value)}));
  const Answer answer = t.read("k");
  EXPECT_TRUE(answer.value == value);
  EXPECT_EQ(answer.version, Version::of(2, 9));
}

// A READ of one takes long: its block is left alone for longer than others.
TEST(Large, AReplacedOneStaysReadableForAWhile) {
  StoreUnderTest t(roomy());
  const auto old = t.put("k", patterned(1, 1'000'000));
  ASSERT_TRUE(t.put("k", patterned(2, 1'000'000)));
  t.clock.advance(50 * kNanosPerMs);
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(t.store.put(as_bytes("k" + std::to_string(i)), as_bytes(patterned(3, 1'000'000))));
  const auto record = decode_record({t.memory->record(old->slot.location()), 1'000'100}, kTestEpoch,
                                    old->slot.location());
  ASSERT_TRUE(record);
  EXPECT_EQ(record->state, RecordState::kSuperseded);
}

// Random puts and removals of all sizes; every block is its own.
TEST(Large, SizesOfAllKindsSideBySide) {
  StoreUnderTest t(roomy());
  Random random(11);
  std::map<std::string, std::pair<std::uint64_t, std::size_t>> model;
  for (std::uint64_t step = 1; step < 1500; ++step) {
    const std::string key = "key" + std::to_string(random.below(60));
    if (random.below(4) == 0) {
      EXPECT_EQ(t.remove(key).has_value(), model.erase(key) == 1);
      continue;
    }
    const std::size_t most = random.below(4) == 0 ? std::size_t{4} << 20 : 200'000;
    const std::size_t length = random.below(random.below(3) == 0 ? 500 : most);
    const auto put = t.put(key, std::string(length, static_cast<char>(step)));
    if (!put) {
      ASSERT_EQ(put.error().code, Code::kOutOfMemory) << to_string(put.error());
      continue;
    }
    model[key] = {step, length};
  }
  EXPECT_GT(model.size(), 20U);
  for (const auto& [key, what] : model) {
    const Answer answer = t.read(key);
    ASSERT_EQ(answer.kind, Answer::Kind::kValue) << key;
    EXPECT_TRUE(answer.value == std::string(what.second, static_cast<char>(what.first))) << key;
  }
}

}  // namespace
}  // namespace rkv::server
