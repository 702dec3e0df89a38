// Conditional writes, counters and expiry, on the store alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

using Limits = std::numeric_limits<std::int64_t>;

class Conditions : public ::testing::Test {
 protected:
  Conditions() { t_.clock.advance(kNanosPerMs - t_.clock.now()); }  // to a whole millisecond
  static Bytes bytes(std::string_view text) { return as_bytes(text); }
  Code put(std::string_view key, std::string_view value, const PutOptions& options) {
    const auto done = t_.store.put(bytes(key), bytes(value), options);
    if (done) version_ = done->version;
    return done ? Code{} : done.error().code;
  }
  Code remove(std::string_view key, Version version) {
    const auto done = t_.store.remove(bytes(key), version);
    return done ? Code{} : done.error().code;
  }

  StoreUnderTest t_{small_memory()};
  Version version_;
};

TEST_F(Conditions, IfAbsent) {
  EXPECT_EQ(put("k", "1", {.condition = Condition::kIfAbsent}), Code{});
  EXPECT_EQ(put("k", "2", {.condition = Condition::kIfAbsent}), Code::kConflict);
  EXPECT_EQ(t_.read("k").value, "1");
  ASSERT_TRUE(t_.remove("k"));
  EXPECT_EQ(put("k", "3", {.condition = Condition::kIfAbsent}), Code{});
  EXPECT_EQ(t_.read("k").value, "3");
}

TEST_F(Conditions, IfVersion) {
  EXPECT_EQ(put("k", "1", {.condition = Condition::kIfVersion}), Code::kNotFound);
  ASSERT_EQ(put("k", "1", {}), Code{});
  const Version first = version_;
  EXPECT_EQ(put("k", "2", {.condition = Condition::kIfVersion, .expected = first}), Code{});
  EXPECT_EQ(put("k", "3", {.condition = Condition::kIfVersion, .expected = first}),
            Code::kConflict);
  EXPECT_EQ(t_.read("k").value, "2");
  EXPECT_EQ(t_.read("k").version, version_);
  EXPECT_EQ(remove("k", first), Code::kConflict);
  EXPECT_EQ(remove("k", version_), Code{});
  EXPECT_EQ(remove("k", version_), Code::kNotFound) << "the version of a deleted key";
  EXPECT_EQ(put("k", "4", {.condition = Condition::kIfVersion, .expected = version_}),
            Code::kNotFound);
}

TEST_F(Conditions, WhatIsRefusedTakesNothing) {
  ASSERT_EQ(put("k", "1", {}), Code{});
  const StoreStats before = t_.store.stats();
  const std::uint64_t begun = t_.log->last_begun();
  for (int i = 0; i < 10'000; ++i)
    ASSERT_EQ(put("k", "22", {.condition = Condition::kIfAbsent}), Code::kConflict);
  EXPECT_EQ(t_.store.stats().data_bytes_used, before.data_bytes_used);
  EXPECT_EQ(t_.log->last_begun(), begun) << "no commit sequence is spent";
}

// One of many threads that saw the same version wins.
TEST_F(Conditions, OneOfManyWins) {
  ASSERT_EQ(put("k", "0", {}), Code{});
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> winners{0};
    const Version seen = t_.read("k").version;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        const auto done = t_.store.put(bytes("k"), bytes(fmt::format("{}", i)),
                                       {.condition = Condition::kIfVersion, .expected = seen});
        if (done) ++winners;
      });
    }
    for (auto& thread : threads)
      thread.join();
    ASSERT_EQ(winners, 1);
  }
}

TEST_F(Conditions, CountersCount) {
  EXPECT_EQ(t_.store.counters().add(bytes("c"), 5)->number, 5) << "an absent key counts from 0";
  EXPECT_EQ(t_.store.counters().add(bytes("c"), -7)->number, -2);
  const auto swapped = t_.store.counters().swap(bytes("c"), -2, 40);
  ASSERT_TRUE(swapped);
  EXPECT_TRUE(swapped->done);
  const auto refused = t_.store.counters().swap(bytes("c"), -2, 50);
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->done);
  EXPECT_EQ(refused->number, 40);
  EXPECT_EQ(refused->put.version, swapped->put.version);
  EXPECT_EQ(t_.store.counters().swap(bytes("absent"), 0, 1).error().code, Code::kNotFound);
  EXPECT_EQ(load_le<std::int64_t>(as_bytes(t_.read("c").value).data()), 40);
}

TEST_F(Conditions, CountersStopAtTheirLimits) {
  EXPECT_EQ(t_.store.counters().add(bytes("c"), Limits::max())->number, Limits::max());
  EXPECT_EQ(t_.store.counters().add(bytes("c"), 1).error().code, Code::kOutOfRange);
  EXPECT_EQ(t_.store.counters().add(bytes("c"), 0)->number, Limits::max());
  EXPECT_EQ(t_.store.counters().add(bytes("d"), Limits::min())->number, Limits::min());
  EXPECT_EQ(t_.store.counters().add(bytes("d"), -1).error().code, Code::kOutOfRange);
}

TEST_F(Conditions, CountersAndValuesDoNotMix) {
  ASSERT_TRUE(t_.store.counters().add(bytes("c"), 1));
  EXPECT_EQ(put("c", "value", {}), Code::kWrongType);
  EXPECT_EQ(t_.store.counters().add(bytes("c"), 0)->number, 1);
  ASSERT_EQ(put("v", "12345678", {}), Code{});
  EXPECT_EQ(t_.store.counters().add(bytes("v"), 1).error().code, Code::kWrongType);
  EXPECT_EQ(t_.store.counters().swap(bytes("v"), 0, 1).error().code, Code::kWrongType);
  EXPECT_EQ(t_.read("v").value, "12345678");
  ASSERT_TRUE(t_.remove("c"));
  EXPECT_EQ(put("c", "value", {}), Code{});
}

TEST_F(Conditions, CountersAddUpOverThreads) {
  constexpr int kEach = kSanitized ? 2'000 : 50'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kEach; ++n)
        ASSERT_TRUE(t_.store.counters().add(bytes("c"), 1));
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(t_.store.counters().add(bytes("c"), 0)->number, 3 * kEach);
}

TEST_F(Conditions, KeysExpireAndNotBefore) {
  ASSERT_EQ(put("k", "v", {.ttl_ms = 1000}), Code{});
  ASSERT_EQ(put("stays", "v", {}), Code{});
  EXPECT_EQ(t_.store.expirer().expire(), t_.clock.now() + 1000 * kNanosPerMs);
  t_.clock.advance(999 * kNanosPerMs);
  EXPECT_EQ(t_.store.expirer().expire(), t_.clock.now() + kNanosPerMs);
  EXPECT_EQ(t_.read("k").value, "v");
  t_.clock.advance(kNanosPerMs);
  t_.store.expirer().expire();
  EXPECT_EQ(t_.read("k").kind, testing::Answer::Kind::kMiss);
  EXPECT_EQ(t_.read("stays").value, "v");
  EXPECT_EQ(t_.store.stats().expired, 1U);
  EXPECT_EQ(t_.store.stats().expiring, 0U);
  EXPECT_EQ(t_.store.stats().records, 1U);
}

// The record is still on disk. It must not come back from there.
TEST(Expiry, ThatIsNotLoggedHoldsWhenTheClockIsSetBack) {
  StoreUnderTest t{small_memory(), *CommitLog::create(CommitLog::kMinCapacityBytes)};
  ExpiryClock& clock = t.store.expiry_clock();
  const auto put = [&](std::string_view key, std::uint64_t ttl_ms) {
    const std::uint64_t expiry_ms = clock.unix_ms() + ttl_ms;
    const auto done = t.store.put(as_bytes(key), as_bytes("v"), {.ttl_ms = ttl_ms});
    EXPECT_TRUE(done);
    return std::pair(expiry_ms, done->version);
  };
  t.clock.advance(10'000 * kNanosPerMs - t.clock.now());  // to a whole millisecond
  const auto first = put("first", 1000);
  const auto second = put("second", 2000);
  const auto later = put("later", 5000);
  t.log->set_disk_state(DiskState::kFailing);
  t.clock.advance(2000 * kNanosPerMs);
  t.store.expirer().expire();
  t.log->set_disk_state(DiskState::kOk);
  EXPECT_EQ(t.store.stats().expired, 2U);
  const auto has_expired = [&](const auto& one) {
    return clock.has_expired(one.first, one.second);
  };
  const std::uint64_t unix_ms_at_0 = clock.unix_ms() - 12'000;
  clock.set(unix_ms_at_0 - 3000);
  EXPECT_TRUE(has_expired(first));
  EXPECT_TRUE(has_expired(second));
  EXPECT_FALSE(has_expired(later));
  EXPECT_FALSE(has_expired(put("written after", 500))) << "by its time alone it would have";
  // Again, at an earlier time: what holds for the first two does not hold for later versions.
  const auto third = put("third", 100);
  t.log->set_disk_state(DiskState::kFailing);
  t.clock.advance(100 * kNanosPerMs);
  t.store.expirer().expire();
  t.log->set_disk_state(DiskState::kOk);
  const auto last = put("last", 500);
  clock.set(unix_ms_at_0 - 6000);
  EXPECT_TRUE(has_expired(third));
  EXPECT_TRUE(has_expired(second));
  EXPECT_FALSE(has_expired(last));
}

TEST_F(Conditions, ANewValueHasItsOwnTime) {
  ASSERT_EQ(put("k", "1", {.ttl_ms = 10}), Code{});
  ASSERT_EQ(put("k", "2", {.ttl_ms = 500}), Code{});
  ASSERT_EQ(put("j", "1", {.ttl_ms = 10}), Code{});
  ASSERT_EQ(put("j", "2", {}), Code{});
  ASSERT_EQ(put("i", "1", {.ttl_ms = 10}), Code{});
  ASSERT_TRUE(t_.store.remove(bytes("i")));
  ASSERT_EQ(put("i", "2", {}), Code{});
  t_.clock.advance(100 * kNanosPerMs);
  t_.store.expirer().expire();
  for (const char* key : {"k", "j", "i"})
    EXPECT_EQ(t_.read(key).value, "2") << key;
  t_.clock.advance(400 * kNanosPerMs);
  t_.store.expirer().expire();
  EXPECT_EQ(t_.get("k"), std::nullopt);
  EXPECT_EQ(t_.get("j"), "2");
}

TEST_F(Conditions, CountersKeepTheirTimeWhenTheyCount) {
  ASSERT_TRUE(t_.store.loader().load({.version = Version::of(1, 1),
                                      .expiry_ms = 100,
                                      .counter = true,
                                      .key = bytes("c"),
                                      .value = std::array<std::byte, 8>{}}));
  EXPECT_EQ(t_.store.counters().add(bytes("c"), 2)->number, 2);
  t_.clock.advance(100 * kNanosPerMs);
  t_.store.expirer().expire();
  EXPECT_EQ(t_.get("c"), std::nullopt);
}

// A value that replaced one with an earlier expiry calls nobody, and expires at its own time.
TEST_F(Conditions, TheExpirerIsCalledForTheEarliestOnly) {
  std::uint64_t calls = 0;
  t_.store.expirer().on_earlier_expiry([&] { ++calls; });
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(put(fmt::format("{}", i % 10), "v", {.ttl_ms = 1'000'000}), Code{});
  }
  EXPECT_EQ(calls, 1U);
  ASSERT_EQ(put("sooner", "v", {.ttl_ms = 1000}), Code{});
  EXPECT_EQ(calls, 2U);
  t_.clock.advance(1000 * kNanosPerMs);
  t_.store.expirer().expire();
  EXPECT_EQ(t_.store.stats().expiring, 10U);
  EXPECT_EQ(t_.store.check_at_rest(), "");
}

TEST(Expiry, OfRecordsThatAFullLogKeepsIsNotForgotten) {
  StoreUnderTest t{small_memory(), *CommitLog::create(CommitLog::kMinCapacityBytes)};
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(t.store.put(as_bytes(fmt::format("{}", i)), as_bytes("v"), {.ttl_ms = 10}));
  const auto fill = [&] {
    return t.store.put(as_bytes("filler"), as_bytes(std::string(1000, 'f')));
  };
  while (fill()) {
  }
  ASSERT_EQ(fill().error().code, Code::kBusy);
  t.clock.advance(20 * kNanosPerMs);
  EXPECT_EQ(t.store.expirer().expire(), t.clock.now() + kNanosPerMs);
  EXPECT_LT(t.store.stats().expired, 100U);
  EXPECT_EQ(t.store.check_at_rest(), "");
  CommitLog::Entry entry;
  while (t.log->consume(&entry)) {
  }
  t.log->advance();
  t.store.expirer().expire();
  EXPECT_EQ(t.store.stats().expired, 100U);
  EXPECT_EQ(t.store.stats().records, 1U);
}

TEST_F(Conditions, KeysExpireFromGroupNeighbourAndStash) {
  StoreUnderTest t(one_pair());
  for (int i = 0; i < 70; ++i)
    ASSERT_TRUE(t.store.put(bytes(fmt::format("{}", i)), bytes("v"), {.ttl_ms = 50}));
  ASSERT_GT(t.store.stats().stashed_records, 0U);
  t.clock.advance(51 * kNanosPerMs);
  t.store.expirer().expire();
  EXPECT_EQ(t.store.stats().records, 0U);
  EXPECT_EQ(t.store.stats().stashed_records, 0U);
  EXPECT_EQ(t.store.stats().data_bytes_used, 0U);
}

}  // namespace
}  // namespace rkv::server
