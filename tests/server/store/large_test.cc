// Large values: had in two steps, proved by a digest, moved by a put.
#include <gtest/gtest.h>

#include <map>

#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

using testing::Answer;

TEST(Large, ReadersFindValuesOfEverySize) {
  StoreUnderTest t(roomy_memory());
  std::uint64_t seed = 0;
  for (const std::size_t size : {kMaxInlineBytes, kMaxInlineBytes + 1, std::size_t{1} << 20,
                                 kMaxValueBytes - 1, kMaxValueBytes}) {
    for (const std::string& key : {std::string("k"), std::string(kMaxKeyBytes, 'K')}) {
      const std::string value = random_text(++seed, size);
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
  StoreUnderTest t(roomy_memory());
  const auto put = t.put("k", random_text(1, 1'000'000));
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
  StoreUnderTest t(roomy_memory());
  ASSERT_TRUE(t.put("k", "old"));
  const std::string value = random_text(2, 300'000);
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
  StoreUnderTest t(roomy_memory(), std::move(*CommitLog::create(std::size_t{32} << 20)));
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

// LARGE-2: their clients may be slow, or have stopped.
TEST(Large, OnesOnTheirWayTakeNothingOfTheQueue) {
  StoreUnderTest t(roomy_memory(), std::move(*CommitLog::create(std::size_t{32} << 20)));
  LargeRecords& records = t.store.large_records();
  const std::uint64_t idle = t.log->bytes_queued();
  auto one = records.begin(as_bytes("a"), kMaxValueBytes - 4096, {});
  auto other = records.begin(as_bytes("b"), kMaxValueBytes - 4096, {});
  ASSERT_TRUE(one && other);
  EXPECT_EQ(t.log->bytes_queued(), idle);
  EXPECT_TRUE(t.put("small", "value"));
  EXPECT_TRUE(t.put("longer", std::string(kMaxInlineBytes, 'l')));
  EXPECT_EQ(t.log->refused(), 0U);
  records.cancel(std::move(*one));
  records.cancel(std::move(*other));
  EXPECT_EQ(records.bytes_under_way(), 0U);
}

// LARGE-3, by the queue's length: each has a copy on the heap.
TEST(Large, OnesOnTheirWayHaveNoMoreThanTheirShare) {
  StoreUnderTest t(roomy_memory(), std::move(*CommitLog::create(std::size_t{32} << 20)));
  LargeRecords& records = t.store.large_records();
  EXPECT_EQ(records.limit_bytes(), std::uint64_t{32} << 20);
  constexpr std::size_t kLength = (std::size_t{16} << 20) - 4096;
  auto first = records.begin(as_bytes("a"), kLength, {});
  auto second = records.begin(as_bytes("b"), kLength, {});
  ASSERT_TRUE(first && second);
  const auto third = records.begin(as_bytes("c"), kMaxInlineBytes + 1, {});
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kBusy);
  EXPECT_EQ(records.refused(), 1U);
  records.cancel(std::move(*first));
  auto again = records.begin(as_bytes("c"), kMaxInlineBytes + 1, {});
  EXPECT_TRUE(again);
  records.cancel(std::move(*again));
  records.cancel(std::move(*second));
  EXPECT_EQ(records.bytes_under_way(), 0U);
}

// LARGE-3, by the memory: without a disk nothing else bounds them.
TEST(Large, OnesOnTheirWayLeaveThreeQuartersOfTheMemory) {
  StoreUnderTest t(roomy_memory());
  LargeRecords& records = t.store.large_records();
  std::vector<LargePut> begun;
  for (int i = 0; i < 32; ++i) {
    auto large = records.begin(as_bytes("k"), kMaxValueBytes, {});
    if (!large && large.error().code == Code::kBusy && t.grow()) continue;
    if (!large) break;
    begun.push_back(std::move(*large));
  }
  EXPECT_GE(begun.size(), 2U);
  EXPECT_LE(records.bytes_under_way(), t.memory->max_data_bytes() / 4);
  EXPECT_GT(records.refused(), 0U);
  EXPECT_TRUE(t.put("other", std::string(kMaxInlineBytes, 'o')));
  for (LargePut& large : begun)
    records.cancel(std::move(large));
}

TEST(Large, OneThatHasArrivedTakesItsSpaceInTheQueueThen) {
  StoreUnderTest t(roomy_memory(), std::move(*CommitLog::create(std::size_t{32} << 20)));
  LargeRecords& records = t.store.large_records();
  const std::string value = random_text(9, kMaxValueBytes - 4096);
  auto large = records.begin(as_bytes("k"), value.size(), {});
  ASSERT_TRUE(large);
  std::memcpy(large->value.data(), value.data(), value.size());
  std::memcpy(large->copy.get(), value.data(), value.size());
  // Meanwhile others fill the queue.
  while (t.put("other", std::string(kMaxInlineBytes, 'o'))) {
  }
  const Status full = records.reserve(*large);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kBusy);
  const std::uint64_t refused = t.log->refused();
  EXPECT_EQ(records.reserve(*large).error().code, Code::kBusy);
  EXPECT_EQ(t.log->refused(), refused) << "the applier is asked to sync once";
  CommitLog::Entry entry;
  while (t.log->consume(&entry)) {
  }
  t.log->advance();
  ASSERT_TRUE(records.reserve(*large));
  const std::uint64_t digest = value_digest(as_bytes("k"), large->value, t.memory->epoch());
  ASSERT_TRUE(records.finish(std::move(*large), as_bytes("k"), digest, {}));
  EXPECT_TRUE(t.read("k").value == value);
  EXPECT_EQ(records.bytes_under_way(), 0U);
}

TEST(Large, AQueueThatCanNeverHoldOneSaysSo) {
  StoreUnderTest t(roomy_memory(), std::move(*CommitLog::create(std::size_t{1} << 20)));
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
  StoreUnderTest t(roomy_memory());
  const std::string value = random_text(3, 2'000'001);
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
  StoreUnderTest t(roomy_memory());
  const auto old = t.put("k", random_text(1, 1'000'000));
  ASSERT_TRUE(t.put("k", random_text(2, 1'000'000)));
  t.clock.advance(50 * kNanosPerMs);
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(
        t.store.put(as_bytes("k" + std::to_string(i)), as_bytes(random_text(3, 1'000'000))));
  const auto record = decode_record({t.memory->record(old->slot.location()), 1'000'100}, kTestEpoch,
                                    old->slot.location());
  ASSERT_TRUE(record);
  EXPECT_EQ(record->state, RecordState::kSuperseded);
}

// Random puts and removals of all sizes; every block is its own.
TEST(Large, SizesOfAllKindsSideBySide) {
  StoreUnderTest t(roomy_memory());
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
