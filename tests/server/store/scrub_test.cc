// Scrubbed memory (SCRUB-1): after each way in which a record leaves its block, nothing of it is
// found in all of the memory that clients READ. Each test also runs without --scrub, where the same
// search must find something: else it would see no fault.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

constexpr char kSecret = '\xA7';
// Shorter ones come by chance, in checksums.
constexpr std::size_t kLeastRun = 6;

// How often the byte stands in a run, anywhere in the index and in the data.
std::size_t runs_of(const StoreMemory& memory, char byte) {
  std::size_t runs = 0;
  for (std::uint32_t id = 0; id < memory.extent_count(); ++id) {
    const StoreMemory::Extent& extent = memory.extent(id);
    const char* at = reinterpret_cast<const char*>(extent.base);
    const char* const end = at + extent.length_bytes;
    while ((at = static_cast<const char*>(
                std::memchr(at, byte, static_cast<std::size_t>(end - at)))) != nullptr) {
      const char* const after = std::find_if(at, end, [&](char c) { return c != byte; });
      runs += static_cast<std::size_t>(after - at) >= kLeastRun ? 1 : 0;
      at = after;
      if (at == end) break;
    }
  }
  return runs;
}

class ScrubbedOrNot {
 protected:
  explicit ScrubbedOrNot(bool scrub, std::unique_ptr<CommitLog> commits = nullptr)
      : scrub_(scrub), t_(with_scrub(small_memory(), scrub), std::move(commits)) {}

  static MemoryOptions with_scrub(MemoryOptions options, bool scrub) {
    options.scrub = scrub;
    return options;
  }
  // `kept`: copies that are in records.
  void expect_gone(std::size_t kept = 0) {
    const std::size_t found = runs_of(*t_.memory, kSecret);
    if (scrub_) {
      EXPECT_EQ(found, kept);
    } else {
      EXPECT_GT(found, kept) << "the search does not find what is there";
    }
  }

  const bool scrub_;
  StoreUnderTest t_;
};

class Scrub : public ::testing::TestWithParam<std::tuple<bool, std::size_t>>,
              protected ScrubbedOrNot {
 protected:
  Scrub() : ScrubbedOrNot(std::get<0>(GetParam())) {}
  std::size_t length() const { return std::get<1>(GetParam()); }
  std::string secret() const { return std::string(length(), kSecret); }
  void put_secret(const PutOptions& options = {}) {
    ASSERT_TRUE(t_.store.put(as_bytes("k"), as_bytes(secret()), options));
    EXPECT_EQ(runs_of(*t_.memory, kSecret), 1U);
  }
};

// A record of two units, of many, one whose slot does not have its length, and two large ones.
INSTANTIATE_TEST_SUITE_P(Lengths, Scrub,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(20, 3'000, 131'020,
                                                              kMaxInlineBytes + 1, 2'000'000)));

TEST_P(Scrub, ADeletedRecord) {
  put_secret();
  ASSERT_TRUE(t_.remove("k"));
  expect_gone();
}

TEST_P(Scrub, AReplacedRecord) {
  put_secret();
  ASSERT_TRUE(t_.put("k", std::string(length() + 100, 'n')));
  EXPECT_EQ(t_.store.stats().puts_moved, 1U);
  expect_gone();
}

TEST_P(Scrub, ARecordThatExpires) {
  put_secret({.ttl_ms = 50});
  t_.clock.advance(100 * kNanosPerMs);
  t_.store.expirer().expire();
  EXPECT_EQ(t_.store.stats().expired, 1U);
  expect_gone();
}

// By a cache.
TEST_P(Scrub, ARecordThatIsDropped) {
  t_.store.evictor().drop_when_full();
  put_secret();
  const std::string other(100'000, 'o');
  for (int i = 0; i < 1'000 && t_.read("k").kind == testing::Answer::Kind::kValue; ++i) {
    if (t_.store.put(as_bytes(fmt::format("other-{}", i)), as_bytes(other))) continue;
    while (t_.grow()) {
    }
    if (t_.store.evictor().is_needed()) t_.store.evictor().evict_for_space();
  }
  ASSERT_EQ(t_.read("k").kind, testing::Answer::Kind::kMiss);
  expect_gone();
  t_.store.evictor().give_up_runs();
}

TEST_P(Scrub, AValueThatDoesNotArrive) {
  if (!is_large(length())) return;
  LargeRecords& records = t_.store.large_records();
  const auto begin = [&](std::size_t arrived) {
    auto large = records.begin(as_bytes("k"), length(), {.condition = Condition::kIfAbsent});
    EXPECT_TRUE(large);
    std::memset(large->value.data(), kSecret, arrived);
    return std::move(*large);
  };
  records.cancel(begin(length() / 2));
  expect_gone();
}

TEST_P(Scrub, AValueThatIsRefusedOnceItIsThere) {
  if (!is_large(length())) return;
  LargeRecords& records = t_.store.large_records();
  const PutOptions absent{.condition = Condition::kIfAbsent};
  ASSERT_TRUE(t_.put("k", "1"));
  auto large = records.begin(as_bytes("k"), length(), absent);
  ASSERT_TRUE(large);
  std::memset(large->value.data(), kSecret, length());
  EXPECT_EQ(records.finish(std::move(*large), as_bytes("k"), 1, absent).error().code,
            Code::kConflict);
  expect_gone();
}

// ---- of one length

class ScrubOne : public ::testing::TestWithParam<bool>, protected ScrubbedOrNot {
 protected:
  ScrubOne() : ScrubbedOrNot(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(WithAndWithout, ScrubOne, ::testing::Bool());

TEST_P(ScrubOne, TheEndOfALongerValueInTheSameBlock) {
  ASSERT_TRUE(t_.put("k", std::string(38, kSecret)));
  ASSERT_TRUE(t_.put("k", std::string(10, 'n')));
  EXPECT_EQ(t_.store.stats().puts_in_place, 1U);
  expect_gone();
}

TEST_P(ScrubOne, TheKey) {
  const std::string key(24, kSecret);
  ASSERT_TRUE(t_.put(key, "v"));
  ASSERT_TRUE(t_.remove(key));
  expect_gone();
}

// A pinned record moves, so that a reader may still find the old one.
TEST_P(ScrubOne, ARecordThatMovesBecauseItIsPinned) {
  std::vector<std::uint64_t> hints(kHintWords);
  t_.store.records().add_hint_words(hints.data());
  t_.memory->set_tick(100'000);
  ASSERT_TRUE(t_.put("k", std::string(100, kSecret)));
  hints.assign(kHintWords, HintWord{.tick_ms = 100'000}.encode());
  ASSERT_TRUE(t_.put("k", std::string(100, 'n')));
  EXPECT_EQ(t_.store.stats().puts_moved, 1U);
  expect_gone();
}

TEST_P(ScrubOne, ACounterThatIsDeleted) {
  constexpr std::int64_t kNumber = 0x27A7A7A7A7A7A7A7;
  ASSERT_TRUE(t_.store.counters().add(as_bytes("k"), kNumber));
  ASSERT_TRUE(t_.remove("k"));
  expect_gone();
}

// Long records leave their stretch for one that is longer: dropped by a cache, else moved.
TEST_P(ScrubOne, ARecordThatIsMovedForALongerOne) {
  t_.store.move_records_for_long_ones();
  constexpr std::size_t kLength = 1'000;
  const auto key = [](std::size_t i) { return fmt::format("key-{:06}", i); };
  std::size_t count = 0;
  while (t_.put(key(count), std::string(kLength, count % 4 == 0 ? kSecret : 'o')))
    ++count;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 4 == 0) continue;
    ASSERT_TRUE(t_.remove(key(i)));
  }
  const std::size_t kept = (count + 3) / 4;
  ASSERT_EQ(runs_of(*t_.memory, kSecret), kept);
  t_.store.evictor().call(record_units(std::size_t{1} << 20));
  ASSERT_TRUE(t_.store.evictor().evict_for_space());
  EXPECT_GT(t_.store.evictor().records_visited_for_runs(), 0U);
  expect_gone(kept);
  t_.store.evictor().give_up_runs();
}

TEST_P(ScrubOne, ARecordWhoseStretchACacheDrops) {
  t_.store.evictor().drop_when_full();
  const auto key = [](std::size_t i) { return fmt::format("key-{:06}", i); };
  std::size_t count = 0;
  while (t_.store.put(as_bytes(key(count)), as_bytes(std::string(1'000, kSecret))) || t_.grow())
    ++count;
  const std::uint64_t before = t_.store.stats().records;
  ASSERT_EQ(runs_of(*t_.memory, kSecret), before);
  t_.store.evictor().call(record_units(std::size_t{1} << 20));
  ASSERT_TRUE(t_.store.evictor().evict_for_space());
  ASSERT_LT(t_.store.stats().records, before - 900);
  expect_gone(t_.store.stats().records);
  t_.store.evictor().give_up_runs();
}

class ScrubBesideADisk : public ::testing::TestWithParam<bool>, protected ScrubbedOrNot {
 protected:
  ScrubBesideADisk()
      : ScrubbedOrNot(GetParam(), *CommitLog::create(CommitLog::kMinServerCapacityBytes)) {
    t_.store.disk().begin_loading();
    t_.store.disk().end_loading();
  }
  // As if the disk had it at once.
  StoreResult<PutResult> put(const std::string& key, char fill) {
    auto done = t_.store.put(as_bytes(key), as_bytes(std::string(100'000, fill)));
    CommitLog::Entry entry;
    while (t_.log->consume(&entry)) {
    }
    t_.log->advance();
    return done;
  }
};
INSTANTIATE_TEST_SUITE_P(WithAndWithout, ScrubBesideADisk, ::testing::Bool());

TEST_P(ScrubBesideADisk, ARecordThatIsEvicted) {
  ASSERT_TRUE(put("k", kSecret));
  for (int i = 0; put(fmt::format("other-{}", i), 'o') || t_.grow(); ++i) {
  }
  t_.log->set_sync_mark(t_.log->last_begun());
  // Each pass takes a use from the records that it does not evict.
  for (int i = 0; i < 100 && t_.read("k").kind == testing::Answer::Kind::kValue; ++i) {
    t_.store.evictor().call(record_units(100'000));
    ASSERT_TRUE(t_.store.evictor().evict_for_space());
  }
  ASSERT_EQ(t_.read("k").kind, testing::Answer::Kind::kAskServer);
  expect_gone();
}

// ---- the search, and the check

TEST(ScrubCheck, SeesWhatIsLeftOfAFreedBlockAndBehindARecord) {
  MemoryOptions options = small_memory();
  options.scrub = true;
  StoreUnderTest t(options);
  const auto put = t.put("k", "value");
  const auto other = t.put("other", std::string(200, 'o'));
  ASSERT_TRUE(put && other);
  ASSERT_TRUE(t.remove("other"));
  ASSERT_EQ(t.store.check_at_rest(), "");
  const auto spoil = [&](std::byte* at) {
    *at = std::byte{1};
    EXPECT_NE(t.store.check_at_rest().find("SCRUB-1"), std::string::npos);
    *at = std::byte{};
    EXPECT_EQ(t.store.check_at_rest(), "");
  };
  spoil(t.memory->record(other->slot.location()) + 100);  // waits
  spoil(t.memory->record(put->slot.location()) + kUnitBytes - 1);
  const StoreMemory::Extent& extent = first_data_extent(*t.memory);
  spoil(extent.base + extent.length_bytes - kPageBytes);  // never used
}

}  // namespace
}  // namespace rkv::server
