// Splits seen from close by: which key ends where, and what it costs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

// One pair that may become two.
MemoryOptions one_pair_or_two() {
  MemoryOptions options = growing_pairs();
  options.max_segments = 2;
  return options;
}

class Split : public ::testing::Test {
 protected:
  // The next key whose hash is as wanted.
  std::string next_key(const std::function<bool(KeyHash)>& wanted) {
    for (;;) {
      std::string key = fmt::format("key{}", number_++);
      if (wanted(t_.memory->hash(as_bytes(key)))) return key;
    }
  }
  static bool upper(KeyHash hash) { return hash.directory_index(1) == 1; }
  static bool even(KeyHash hash) { return hash.group_index(2) == 0; }

  GroupHeader header_of(const std::string& key) {
    const GroupPlace home = t_.memory->home(t_.memory->hash(as_bytes(key)));
    return GroupHeader::decode(t_.memory->group(home)->header);
  }
  void expect_all(const std::vector<std::string>& keys) {
    for (const std::string& key : keys)
      EXPECT_EQ(t_.read_or_ask(key), key);
  }

  StoreUnderTest t_{one_pair_or_two()};
  std::uint64_t number_ = 0;
};

TEST_F(Split, AFullPairMovesWithItsGuestsAndItsStash) {
  std::vector<std::string> keys;
  while (t_.store.stats().index_splits == 0) {
    keys.push_back(next_key([](KeyHash hash) { return upper(hash) && even(hash); }));
    ASSERT_TRUE(t_.put(keys.back(), keys.back()));
  }
  ASSERT_GT(keys.size(), 2 * kSlotsPerGroup);
  const GroupHeader moved = header_of(keys.front());
  EXPECT_EQ(moved.depth, 1U);
  EXPECT_TRUE(moved.overflow);
  EXPECT_TRUE(moved.spilled);
  EXPECT_EQ(t_.store.stats().stashed_records, keys.size() - 2 * kSlotsPerGroup);
  const GroupHeader left = header_of(next_key([](KeyHash hash) { return !upper(hash); }));
  EXPECT_EQ(left.depth, 1U);
  EXPECT_FALSE(left.overflow);
  EXPECT_FALSE(left.spilled);
  expect_all(keys);
  for (const std::string& key : keys)
    EXPECT_TRUE(t_.remove(key));
  EXPECT_EQ(t_.store.stats().stashed_records, 0U);
  EXPECT_FALSE(header_of(keys.front()).overflow);
}

TEST_F(Split, AFullPairStaysWithItsGuestsAndItsStash) {
  std::vector<std::string> keys;
  while (t_.store.stats().index_splits == 0) {
    keys.push_back(next_key([](KeyHash hash) { return !upper(hash) && even(hash); }));
    ASSERT_TRUE(t_.put(keys.back(), keys.back()));
  }
  EXPECT_TRUE(header_of(keys.front()).overflow);
  EXPECT_TRUE(header_of(keys.front()).spilled);
  EXPECT_EQ(t_.store.stats().stashed_records, keys.size() - 2 * kSlotsPerGroup);
  expect_all(keys);
}

TEST_F(Split, GuestsAndStashedKeysOfBothHalvesComeHome) {
  std::vector<std::string> keys;
  while (t_.store.stats().index_splits == 0) {
    keys.push_back(next_key(even));
    ASSERT_TRUE(t_.put(keys.back(), keys.back()));
  }
  EXPECT_EQ(t_.store.stats().stashed_records, 0U);
  for (const std::string& key : keys) {
    EXPECT_FALSE(header_of(key).spilled);
    EXPECT_EQ(t_.read(key).value, key) << "found without the server";
  }
}

// Without memory for it, nothing splits, keys wait in the stash, and split when memory has come.
TEST(SplitWithoutMemory, WaitsAndIsMadeUpFor) {
  MemoryOptions options = growing_pairs();
  options.index_extent_bytes = std::size_t{2} * kGroupBytes;  // a segment
  StoreUnderTest t(options);
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(t.store.put(as_bytes(fmt::format("{}", i)), {})) << i;
  EXPECT_EQ(t.store.stats().index_splits, 0U);
  EXPECT_EQ(t.store.stats().stashed_records, 40U);
  EXPECT_TRUE(t.store.growth().wants_memory());
  EXPECT_TRUE(t.grow());
  EXPECT_GE(t.store.stats().index_splits, 1U);
  EXPECT_EQ(t.store.stats().stashed_records, 0U);
}

// No room for the index at all: PUTs fail at last, and nothing is lost.
TEST(SplitWithoutMemory, NoMoreMemoryIsAnAnswer) {
  StoreUnderTest t(one_pair());
  int keys = 0;
  Result<PutResult> put = t.put("0", "");
  while (put)
    put = t.put(fmt::format("{}", ++keys), "");
  EXPECT_EQ(put.error().code, Code::kOutOfMemory);
  EXPECT_EQ(t.store.stats().records, static_cast<std::uint64_t>(keys));
  for (int i = 0; i < keys; ++i)
    ASSERT_EQ(t.read_or_ask(fmt::format("{}", i)), "");
}

// READs a hit without a cache, and index memory a key, over two whole doublings.
TEST(SplitFigures, OverDoublings) {
  if (kSanitized) GTEST_SKIP() << "figures, for the plain build";
  MemoryOptions options = small_memory();
  options.memory_bytes = std::size_t{64} << 20;
  options.initial_segments = 16;
  StoreUnderTest t(options);
  const std::uint64_t first = 60'000;  // well inside a doubling: segments split at 0.95 load
  const std::uint64_t last = 4 * first;
  double bytes_per_key = 0;
  double reads_per_hit = 0;
  std::uint64_t hits = 0;
  std::uint64_t asked = 0;
  std::uint64_t samples = 0;
  for (std::uint64_t keys = 0; keys < last;) {
    ASSERT_TRUE(t.put(fmt::format("{:x}", keys), ""));
    if (++keys < first || keys % 6'000 != 0) continue;
    bytes_per_key += static_cast<double>(t.store.stats().index_slots) / kSlotsPerGroup *
                     kGroupBytes / static_cast<double>(keys);
    ++samples;
    for (std::uint64_t i = keys % 7; i < keys; i += 7) {
      t.port.reads = 0;
      const testing::Answer answer = t.read(fmt::format("{:x}", i));
      ASSERT_NE(answer.kind, testing::Answer::Kind::kMiss) << i;
      (answer.kind == testing::Answer::Kind::kAskServer ? asked : hits) += 1;
      if (answer.kind == testing::Answer::Kind::kValue) reads_per_hit += t.port.reads;
    }
  }
  bytes_per_key /= static_cast<double>(samples);
  reads_per_hit /= static_cast<double>(hits);
  const double asked_part = static_cast<double>(asked) / static_cast<double>(hits + asked);
  fmt::print(
      "{} to {} keys: {:.2f} index bytes a key, {:.3f} READs a hit without a cache, "
      "{:.2f} % asked the server, {} splits\n",
      first, last, bytes_per_key, reads_per_hit, 100 * asked_part, t.store.stats().index_splits);
  EXPECT_LE(bytes_per_key, 12.0);
  EXPECT_LE(reads_per_hit, 2.05);
  EXPECT_LE(asked_part, 0.02);
}

}  // namespace
}  // namespace rkv::server
