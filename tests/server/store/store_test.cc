#include "server/store/store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/index/index.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

using Kind = testing::Answer::Kind;

TEST(Store, PutGetRemove) {
  StoreUnderTest t(small_memory());
  EXPECT_EQ(t.get("key"), std::nullopt);
  EXPECT_EQ(t.read("key").kind, Kind::kMiss);

  const auto put = t.put("key", "value");
  ASSERT_TRUE(put);
  EXPECT_EQ(put->version.boot(), kTestBoot);
  EXPECT_FALSE(put->in_neighbour);
  EXPECT_EQ(t.get("key"), "value");
  const testing::Answer answer = t.read("key");
  EXPECT_EQ(answer.value, "value");
  EXPECT_EQ(answer.version, put->version);

  const auto removed = t.remove("key");
  ASSERT_TRUE(removed);
  EXPECT_GT(*removed, put->version);
  EXPECT_EQ(t.get("key"), std::nullopt);
  EXPECT_EQ(t.read("key").kind, Kind::kMiss);
  EXPECT_EQ(t.remove("key").error().code, Code::kNotFound);
  EXPECT_EQ(t.store.stats().records, 0U);
  EXPECT_EQ(t.store.stats().data_bytes_used, 0U);
}

TEST(Store, TheReplysSlotLeadsToTheRecord) {
  StoreUnderTest t(small_memory());
  const auto put = *t.put("key", "value");
  const std::size_t length = put.slot.units() * kUnitBytes;
  const std::byte* at = t.memory->record(put.slot.location(), put.slot.units());
  const auto record = decode_record({at, length}, kTestEpoch, put.slot.location());
  ASSERT_TRUE(record);
  EXPECT_EQ(as_text(record->fields.key), "key");
  EXPECT_EQ(record->state, RecordState::kLive);
}

TEST(Store, RewritesInPlaceOnlyWhenTheLengthInUnitsStays) {
  StoreUnderTest t(small_memory());
  const auto first = *t.put("k", std::string(10, 'a'));   // 35 bytes: 2 units
  const auto second = *t.put("k", std::string(39, 'b'));  // 64 bytes: 2 units
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_EQ(t.store.stats().puts_in_place, 1U);
  const auto third = *t.put("k", std::string(40, 'c'));  // 65 bytes: 3 units
  EXPECT_NE(third.slot.location(), first.slot.location());
  EXPECT_EQ(t.store.stats().puts_moved, 1U);
  EXPECT_EQ(t.read("k").value, std::string(40, 'c'));
  EXPECT_LT(first.version, second.version);
  EXPECT_LT(second.version, third.version);
  EXPECT_EQ(t.store.stats().records, 1U);
  EXPECT_EQ(t.store.stats().data_bytes_used, 3 * kUnitBytes);
}

TEST(Store, AMovedRecordIsSupersededWhereItWas) {
  StoreUnderTest t(small_memory());
  const auto old = *t.put("k", "short");
  ASSERT_TRUE(t.put("k", std::string(100, 'x')));
  const std::byte* at = t.memory->record(old.slot.location(), old.slot.units());
  const auto record =
      decode_record({at, old.slot.units() * kUnitBytes}, kTestEpoch, old.slot.location());
  ASSERT_TRUE(record);
  EXPECT_EQ(record->state, RecordState::kSuperseded);
  EXPECT_EQ(as_text(record->fields.value), "short");
}

TEST(Store, HoldsTheLimits) {
  StoreUnderTest t(small_memory());
  const std::string key(kMaxKeyBytes, 'k');
  const std::string value(kMaxInlineBytes, 'v');
  const auto put = t.put(key, value);
  ASSERT_TRUE(put);
  EXPECT_TRUE(put->slot.is_long());
  EXPECT_EQ(t.get(key), value);
  EXPECT_EQ(t.read(key).value, value);
  ASSERT_TRUE(t.put(key, ""));
  EXPECT_EQ(t.read(key).value, "");
  EXPECT_EQ(t.get(key), "");
  ASSERT_TRUE(t.put("k", value));
  ASSERT_TRUE(t.put("k", std::string(kMaxInlineBytes, 'w')));
  EXPECT_EQ(t.read("k").value, std::string(kMaxInlineBytes, 'w'));
}

TEST(Store, KeepsTheExpiry) {
  StoreUnderTest t(small_memory());
  const auto put = *t.store.put(as_bytes("k"), as_bytes("v"), {.ttl_ms = 123'456});
  const std::byte* at = t.memory->record(put.slot.location());
  const auto record =
      decode_record({at, put.slot.units() * kUnitBytes}, kTestEpoch, put.slot.location());
  ASSERT_TRUE(record);
  EXPECT_EQ(record->fields.expiry_ms, 123'457U);  // the clock is at 1 ns
  EXPECT_EQ(t.get("k"), "v");
  EXPECT_EQ(t.read("k").value, "v");
}

TEST(Store, LoadKeepsTheHigherVersion) {
  StoreUnderTest t(small_memory());
  const auto load = [&](std::uint64_t sequence, std::string_view value) {
    return t.store.loader().load({.version = Version::of(2, sequence),
                                  .expiry_ms = 0,
                                  .key = as_bytes("k"),
                                  .value = as_bytes(value)});
  };
  ASSERT_TRUE(load(10, "ten"));
  ASSERT_TRUE(load(9, "nine, a longer value than the other"));
  EXPECT_EQ(t.get("k"), "ten");
  EXPECT_EQ(t.read("k").version, Version::of(2, 10));
  ASSERT_TRUE(load(11, "eleven"));
  EXPECT_EQ(t.read("k").value, "eleven");
  EXPECT_EQ(t.store.stats().records, 1U);
  EXPECT_EQ(t.log->last_begun(), 0U) << "nothing is logged";
}

TEST(Store, APairTakesMoreKeysThanItHasSlots) {
  StoreUnderTest t(one_pair());
  const int keys = 2 * kSlotsPerGroup + 40;
  for (int i = 0; i < keys; ++i)
    ASSERT_TRUE(t.put(fmt::format("key{}", i), fmt::format("value{}", i)));
  EXPECT_EQ(t.store.stats().stashed_records, 40U);
  int asked = 0;
  for (int i = 0; i < keys; ++i) {
    const std::string key = fmt::format("key{}", i);
    EXPECT_EQ(t.read_or_ask(key), fmt::format("value{}", i));
    asked += t.read(key).kind == Kind::kAskServer ? 1 : 0;
  }
  EXPECT_EQ(asked, 40);
  EXPECT_EQ(t.read("no such key").kind, Kind::kAskServer);
  // Stashed keys come back as room appears, and the flags go.
  for (int i = 0; i < keys - 5; ++i)
    ASSERT_TRUE(t.remove(fmt::format("key{}", i)));
  EXPECT_EQ(t.store.stats().stashed_records, 0U);
  EXPECT_EQ(t.read("no such key").kind, Kind::kMiss);
  t.port.reads = 0;
  for (int i = keys - 5; i < keys; ++i)
    EXPECT_EQ(t.read(fmt::format("key{}", i)).value, fmt::format("value{}", i));
  EXPECT_EQ(t.port.reads, 10) << "two READs each: everybody is at home again";
}

TEST(Store, AStashedKeyCanBeRewrittenMovedAndRemoved) {
  StoreUnderTest t(one_pair());
  std::string stashed;
  for (int i = 0; stashed.empty(); ++i) {
    const std::string key = fmt::format("key{}", i);
    const auto put = t.put(key, "v");
    ASSERT_TRUE(put);
    if (t.store.stats().stashed_records != 0) stashed = key;
  }
  for (const char* value : {"w", "a value that needs more units than the one before it"}) {
    const auto put = t.put(stashed, value);
    ASSERT_TRUE(put);
    EXPECT_EQ(t.store.get(as_bytes(stashed), t.buffer)->slot, put->slot);
    EXPECT_EQ(t.get(stashed), value);
    EXPECT_EQ(t.read(stashed).kind, Kind::kAskServer);
  }
  ASSERT_TRUE(t.remove(stashed));
  EXPECT_EQ(t.read(stashed).kind, Kind::kMiss);
  EXPECT_EQ(t.store.stats().stashed_records, 0U);
}

TEST(Store, AFullStashIsAnErrorThatChangesNothing) {
  StoreUnderTest t(one_pair());
  int keys = 0;
  Result<PutResult> last = t.put("key0", "");
  while (last)
    last = t.put(fmt::format("key{}", ++keys), "");
  EXPECT_EQ(last.error().code, Code::kOutOfMemory);
  EXPECT_EQ(keys, 2 * kSlotsPerGroup + Index::kLongestChain);
  const StoreStats before = t.store.stats();
  EXPECT_FALSE(t.put("one more", ""));
  EXPECT_EQ(t.get("one more"), std::nullopt);
  EXPECT_EQ(t.store.stats().data_bytes_used, before.data_bytes_used);
  EXPECT_TRUE(t.put("key0", "a present key needs no slot")) << "it has one";
  ASSERT_TRUE(t.remove("key1"));
  EXPECT_TRUE(t.put("one more", ""));
}

TEST(Store, ABusyLogRefusesWritesAndChangesNothing) {
  auto log = CommitLog::create(1);
  ASSERT_TRUE(log);
  StoreUnderTest t(small_memory(), std::move(*log));
  const std::string value(kMaxInlineBytes, 'v');
  int taken = 0;
  Result<PutResult> put = t.put("key0", value);
  while (put)
    put = t.put(fmt::format("key{}", ++taken), value);
  EXPECT_EQ(put.error().code, Code::kBusy);
  EXPECT_GE(taken, 3);
  const StoreStats before = t.store.stats();
  EXPECT_EQ(t.get(fmt::format("key{}", taken)), std::nullopt);
  EXPECT_FALSE(t.put("key0", std::string(kMaxInlineBytes, 'w')));
  EXPECT_EQ(t.get("key0"), value);
  EXPECT_EQ(t.store.stats().data_bytes_used, before.data_bytes_used);

  // A request that changes nothing gives its room back.
  CommitLog::Entry entry;
  while (t.log->consume(&entry)) {
  }
  t.log->advance();
  for (int i = 0; i < 20'000; ++i)
    ASSERT_EQ(t.remove("no such key").error().code, Code::kNotFound);
  EXPECT_EQ(t.log->bytes_queued(), 0U);
  EXPECT_TRUE(t.put("key0", "w"));

  t.log->set_disk_state(DiskState::kFailing);
  EXPECT_EQ(t.put("key0", "x").error().code, Code::kIo);
  EXPECT_EQ(t.remove("key0").error().code, Code::kIo);
  EXPECT_EQ(t.read("key0").value, "w");
}

// Else what a dump shows could not be loaded.
TEST(Store, NoKeyExpiresLaterThanAnExpiryThatCanBeGiven) {
  StoreUnderTest t(small_memory());
  t.clock.advance(1'000 * kNanosPerMs);
  const auto expiry_of = [&](std::uint64_t ttl_ms) {
    EXPECT_TRUE(t.store.put(as_bytes("k"), as_bytes("v"), {.ttl_ms = ttl_ms}));
    return t.store.get(as_bytes("k"), t.buffer)->expiry_ms;
  };
  EXPECT_EQ(expiry_of(kMaxTtlMs), kMaxTtlMs);
  EXPECT_EQ(expiry_of(kMaxTtlMs - 500), kMaxTtlMs);
  EXPECT_EQ(expiry_of(kMaxTtlMs - 2'000), kMaxTtlMs - 2'000 + 1'001);
}

// A memory that is full of keys with a time to live has no use for a sync, however much is written.
TEST(Store, ASyncIsWantedWhereItLetsSomethingGo) {
  auto log = CommitLog::create(CommitLog::kMinServerCapacityBytes);
  ASSERT_TRUE(log);
  StoreUnderTest t(small_memory(), std::move(*log));
  t.store.disk().begin_loading();
  t.store.disk().end_loading();
  const auto put = [&](const std::string& key, std::size_t bytes, std::uint64_t ttl_ms) {
    t.clock.advance(10 * kNanosPerMs);
    const std::string value(bytes, 'v');
    const auto done = t.store.put(as_bytes(key), as_bytes(value), {.ttl_ms = ttl_ms});
    CommitLog::Entry entry;  // it is on disk, as far as the log's room goes, and never synced
    while (t.log->consume(&entry)) {
    }
    t.log->advance();
    return done;
  };
  const auto fill = [&](const std::string& name, std::uint64_t ttl_ms) {
    int keys = 0;
    for (const std::size_t bytes : {100'000U, 1000U}) {
      for (;;) {
        if (put(fmt::format("{}{}", name, keys), bytes, ttl_ms)) {
          ++keys;
        } else if (!t.grow()) {
          break;
        }
      }
    }
    return keys;
  };
  ASSERT_GT(fill("expires", 10'000'000), 10);
  ASSERT_TRUE(t.store.evictor().is_needed());
  ASSERT_LT(t.log->sync_mark(), t.log->last_begun());
  ASSERT_FALSE(t.store.evictor().evict_for_space());
  EXPECT_FALSE(t.store.evictor().evicts_after_sync());
  EXPECT_TRUE(t.store.evictor().has_nothing_to_evict()) << "not looked at a hundred times a second";

  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(t.remove(fmt::format("expires{}", i)));
  ASSERT_GT(fill("stays", 0), 0);
  ASSERT_FALSE(t.store.evictor().evict_for_space());
  EXPECT_TRUE(t.store.evictor().evicts_after_sync());
  EXPECT_FALSE(t.store.evictor().has_nothing_to_evict());
  t.log->set_sync_mark(t.log->last_begun());
  EXPECT_TRUE(t.store.evictor().evict_for_space());
}

TEST(Store, TheLogSeesEveryCommitInOrder) {
  auto log = CommitLog::create(1 << 20);
  ASSERT_TRUE(log);
  StoreUnderTest t(small_memory(), std::move(*log));
  const auto first = *t.put("a", "1");
  const auto second = *t.put("a", "2");
  const Version third = *t.remove("a");
  CommitLog::Entry entry;
  ASSERT_TRUE(t.log->consume(&entry));
  EXPECT_EQ(entry.record.version, first.version);
  EXPECT_EQ(as_text(entry.record.value), "1");
  ASSERT_TRUE(t.log->consume(&entry));
  EXPECT_EQ(entry.record.version, second.version);
  EXPECT_EQ(entry.kind, CommitLog::Kind::kPut);
  ASSERT_TRUE(t.log->consume(&entry));
  EXPECT_EQ(entry.record.version, third);
  EXPECT_EQ(entry.kind, CommitLog::Kind::kRemove);
  EXPECT_EQ(as_text(entry.record.key), "a");
  EXPECT_FALSE(t.log->consume(&entry));
}

}  // namespace
}  // namespace rkv::server
