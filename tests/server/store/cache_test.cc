// A full store without a disk: how much of its memory holds records (a cache), and that a long
// value finds its place among short ones, by records that are dropped (a cache) or moved (any
// other).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/random.h"
#include "tests/server/store/store_fixture.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

MemoryOptions of_size(std::size_t bytes) {
  MemoryOptions options = small_memory();
  options.memory_bytes = bytes;
  return options;
}

// With the background's work done when a write asks for it, and now and then.
class FilledStore {
 public:
  enum class Kind { kCache, kKeeps };
  FilledStore(std::size_t memory_bytes, Kind kind) : under_test_(of_size(memory_bytes)) {
    if (kind == Kind::kCache) {
      store().evictor().drop_when_full();
    } else {
      store().move_records_for_long_ones();
    }
  }
  ~FilledStore() { store().evictor().give_up_runs(); }
  FilledStore(const FilledStore&) = delete;
  FilledStore& operator=(const FilledStore&) = delete;

  Store& store() { return under_test_.store; }
  StoreStats stats() { return store().stats(); }
  ManualClock& clock() { return under_test_.clock; }
  StoreUnderTest& under_test() { return under_test_; }

  Result<PutResult> put(const std::string& key, std::string_view value, int tries = 100) {
    for (;;) {
      clock().advance(kNanosPerMs / 10);
      const auto put = store().put(as_bytes(key), as_bytes(value));
      if (put || put.error().code != Code::kBusy || --tries == 0) {
        if (++writes_ % 16 == 0) background();
        if (put) return *put;
        return std::unexpected<Error>(put.error());
      }
      clock().advance(2 * kNanosPerMs);
      background();
    }
  }
  bool has(const std::string& key) { return under_test_.get(key).has_value(); }
  void background() {
    if (store().growth().wants_memory()) (void)store().growth().grow();
    if (store().evictor().is_needed()) (void)store().evictor().evict_for_space();
  }

 private:
  StoreUnderTest under_test_;
  int writes_ = 0;
};

// ---- a cache

// The hand drops what is wanted, in the lengths that the records have.
TEST(Cache, KeepsNineTenthsOfWhatFitsWhateverTheLength) {
  const std::size_t memory = std::size_t{kSanitized ? 128 : 512} << 20;
  for (const std::size_t kib : {64U, 127U, 256U, 1024U, 4096U, 8192U, 15U << 10, 16U << 10}) {
    FilledStore cache(memory, FilledStore::Kind::kCache);
    const std::string value(kib << 10, 'v');
    std::uint64_t most = 0;
    std::uint64_t least = ~std::uint64_t{0};
    for (std::size_t i = 0; i < 2 * memory / value.size(); ++i) {
      const auto put = cache.put(fmt::format("key-{}", i), value);
      ASSERT_TRUE(put) << kib << " KiB, " << i << ": " << to_string(put.error());
      const StoreStats stats = cache.stats();
      most = std::max(most, stats.records);
      if (stats.evicted != 0) least = std::min(least, stats.records);
    }
    EXPECT_GE(least + 1, most * 9 / 10) << kib << " KiB";  // one goes for the one that comes
    EXPECT_GE(most * value.size(), memory * (kSanitized ? 7 : 8) / 10) << kib << " KiB";
  }
}

// The cost of a run is determined from its stretch, not from the index.
TEST(Cache, ALongValueLooksAtTheRecordsOfItsStretchesOnly) {
  constexpr std::size_t kLong = std::size_t{1} << 20;
  std::map<std::size_t, std::uint64_t> visited;
  for (const std::size_t mib : {64U, 256U}) {
    FilledStore cache(mib << 20, FilledStore::Kind::kCache);
    const std::string value(900, 'v');
    for (std::size_t i = 0; i < (mib << 20) / value.size() * 5 / 4; ++i)
      ASSERT_TRUE(cache.put(fmt::format("key-{}", i), value));
    const StoreStats before = cache.stats();
    constexpr int kValues = 8;
    for (int i = 0; i < kValues; ++i)
      ASSERT_TRUE(cache.put(fmt::format("long-{}", i), std::string(kLong, 'l')));
    visited[mib] = cache.store().evictor().records_visited_for_runs();
    EXPECT_GT(visited[mib], 0U);
    const std::uint64_t of_one = kLong / value.size();
    EXPECT_LE(visited[mib], 4 * of_one * kValues) << "of " << before.records << " records";
    EXPECT_LE(cache.stats().evicted - before.evicted, before.records / 8 + 3 * of_one * kValues);
    for (int i = 0; i < kValues; ++i)
      EXPECT_EQ(cache.under_test().read(fmt::format("long-{}", i)).kind,
                testing::Answer::Kind::kValue);
  }
  EXPECT_LE(visited[256], 2 * visited[64]);
}

// Records whose uses nobody takes when runs are made in other stretches: the hand still sees them.
TEST(Cache, RunsTakeNoUseFromRecordsThatStay) {
  FilledStore cache(std::size_t{64} << 20, FilledStore::Kind::kCache);
  const std::string value(900, 'v');
  const auto key = [](int i) { return fmt::format("key-{}", i); };
  constexpr int kAll = 80'000;
  for (int i = 0; i < kAll; ++i)
    ASSERT_TRUE(cache.put(key(i), value));
  std::vector<int> hot;
  for (int i = kAll - 1; i >= 0 && hot.size() < 2'000; i -= 20)
    if (cache.has(key(i))) hot.push_back(i);
  for (int round = 0; round < 4; ++round)
    for (const int i : hot)
      ASSERT_TRUE(cache.has(key(i)));
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(cache.put(fmt::format("long-{}", i), std::string(16'384, 'l')));
  const auto lost = std::ranges::count_if(hot, [&](int i) { return !cache.has(key(i)); });
  // Only records in the stretches themselves may be lost: 100 of 16 KiB are 1/40 of the memory.
  EXPECT_LE(lost, static_cast<std::ptrdiff_t>(hot.size() / 10));
}

// Each record is a unit longer than those before, and somebody asks for a run all the time.
TEST(Cache, ShorterRecordsFindRoomBesideALongOneThatIsAskedForAgainAndAgain) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  FilledStore cache(64 * kMiB, FilledStore::Kind::kCache);
  const std::string value(690, 'v');
  for (std::size_t i = 0; i < 64 * kMiB / value.size() * 5 / 4; ++i)
    ASSERT_TRUE(cache.put(fmt::format("key-{}", i), value));
  const std::string longer(value.size() + kUnitBytes, 'l');
  for (int i = 0; i < 2'000; ++i) {
    bool is_stored = false;
    for (int tries = 0; tries < 20 && !is_stored; ++tries) {
      is_stored =
          cache.store().put(as_bytes(fmt::format("longer-{}", i)), as_bytes(longer)).has_value();
      cache.store().evictor().call(record_units(4 * kMiB));
      cache.clock().advance(2 * kNanosPerMs);
      if (!is_stored) cache.background();
    }
    ASSERT_TRUE(is_stored) << i;
  }
}

// ---- a store that keeps what it has

class Moves : public ::testing::Test {
 protected:
  static constexpr std::size_t kMemory = std::size_t{64} << 20;
  Moves() : keeps_(kMemory, FilledStore::Kind::kKeeps) {}

  static std::string key(std::size_t i) { return fmt::format("key-{:06}", i); }
  static std::string value(std::size_t i) { return fmt::format("{:0100}", i); }
  // Fills the memory, and deletes all but one in `keep_every`.
  void fill_and_delete(std::size_t keep_every) {
    std::size_t count = 0;
    while (keeps_.put(key(count), value(count)))
      ++count;
    for (std::size_t i = 0; i < count; ++i) {
      if (i % keep_every != 0) {
        ASSERT_TRUE(keeps_.store().remove(as_bytes(key(i))));
      } else {
        left_.push_back(i);
      }
    }
  }
  void expect_the_rest_unchanged() {
    for (const std::size_t i : left_) {
      const testing::Answer answer = keeps_.under_test().read(key(i));
      const auto got = answer.kind == testing::Answer::Kind::kAskServer
                           ? keeps_.under_test().get(key(i))
                           : std::optional<std::string>(answer.value);
      ASSERT_EQ(got, value(i)) << i;
    }
  }

  FilledStore keeps_;
  std::vector<std::size_t> left_;
};

TEST_F(Moves, LongValuesFindRoomAfterMostRecordsAreDeleted) {
  fill_and_delete(100);
  ASSERT_LT(keeps_.stats().data_bytes_used, kMemory / 50);
  std::map<std::size_t, Version> versions;
  for (const std::size_t i : left_)
    versions[i] = keeps_.store().get(as_bytes(key(i)), keeps_.under_test().buffer)->version;
  for (const std::size_t length :
       {std::size_t{2'000}, std::size_t{65'536}, std::size_t{1} << 20, std::size_t{8} << 20}) {
    const auto put = keeps_.put(fmt::format("long-{}", length), std::string(length, 'l'));
    EXPECT_TRUE(put) << length << ": " << to_string(put.error());
    EXPECT_EQ(keeps_.under_test().read(fmt::format("long-{}", length)).kind,
              testing::Answer::Kind::kValue);
  }
  expect_the_rest_unchanged();
  for (const std::size_t i : left_)
    EXPECT_EQ(keeps_.store().get(as_bytes(key(i)), keeps_.under_test().buffer)->version,
              versions[i]);
  EXPECT_EQ(keeps_.stats().evicted, 0U);
}

// As many as free memory holds, nearly.
TEST_F(Moves, MostOfTheFreeMemoryTakesValuesOf64KiB) {
  fill_and_delete(20);
  const StoreStats before = keeps_.stats();
  std::size_t stored = 0;
  while (keeps_.put(fmt::format("long-{}", stored), std::string(65'536, 'l')))
    ++stored;
  EXPECT_GE(stored * 65'536, (before.data_bytes - before.data_bytes_used) * 8 / 10);
  expect_the_rest_unchanged();
}

// Where nothing helps it says so at once, and again after a second.
TEST_F(Moves, AStoreThatIsFullRefusesWithoutMovingAnything) {
  std::size_t count = 0;
  while (keeps_.put(key(count), value(count)))
    ++count;
  const auto put = keeps_.put("long", std::string(65'536, 'l'));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kOutOfMemory);
  EXPECT_EQ(keeps_.store().evictor().records_visited_for_runs(), 0U);
}

// The rests of the extents, however many they are, are no reason to speak of pieces.
TEST_F(Moves, AStoreFullOfLongRecordsSaysThatThereIsNoMemory) {
  for (std::size_t count = 0;; ++count) {
    const auto put = keeps_.put(fmt::format("long-{}", count), std::string(200'000, 'l'));
    if (put) continue;
    EXPECT_EQ(put.error().code, Code::kOutOfMemory);
    EXPECT_EQ(std::string(put.error().text), "no memory for the record: delete some keys");
    return;
  }
}

TEST_F(Moves, WhatStaysForAnotherReasonThanItsPlaceIsSaid) {
  // Values of 200 KB are not moved. Between them there is room for none of 8 MiB.
  std::size_t count = 0;
  while (keeps_.put(fmt::format("middle-{}", count), std::string(200'000, 'm')))
    ++count;
  for (std::size_t i = 0; i < count; ++i)
    if (i % 4 != 0) {
      ASSERT_TRUE(keeps_.store().remove(as_bytes(fmt::format("middle-{}", i))));
    }
  const auto put = keeps_.put("long", std::string(std::size_t{8} << 20, 'l'));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kOutOfMemory);
  EXPECT_NE(std::string(put.error().text).find("pieces too short"), std::string::npos)
      << to_string(put.error());
  EXPECT_LT(keeps_.stats().longest_free_bytes, std::size_t{8} << 20);
  EXPECT_TRUE(keeps_.put("shorter", std::string(500'000, 's')));
}

}  // namespace
}  // namespace rkv::server
