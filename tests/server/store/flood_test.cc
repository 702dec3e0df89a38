// Keys that a client has chosen to collide: it can READ the seed of the hash.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/index/index.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

constexpr std::uint32_t kSlotsOfPair = 2 * kSlotsPerGroup;
constexpr std::uint32_t kMost = kSlotsOfPair + Index::kLongestChain;

class Flood : public ::testing::Test {
 protected:
  // Not to be parted by any split that there may be: the prefix and the pair are the same.
  bool collides(std::string_view key) const {
    const KeyHash hash = t_.memory->hash(as_bytes(key));
    const std::uint32_t depth = t_.memory->segments().directory_depth();
    return hash.directory_index(depth) == 0 && hash.group_index(4) / 2 == 0;
  }
  std::vector<std::string> chosen_keys(std::size_t count) const {
    std::vector<std::string> keys;
    for (std::uint64_t i = 0; keys.size() < count; ++i) {
      std::string key = fmt::format("chosen-{}", i);
      if (collides(key)) keys.push_back(std::move(key));
    }
    return keys;
  }
  static MemoryOptions sixty_four_pairs() {
    MemoryOptions options = small_memory();
    options.groups_per_segment = 4;
    options.initial_segments = 1;
    options.max_segments = 32;
    return options;
  }
  // Again, while the segment is being split.
  Result<PutResult> put_patiently(std::string_view key) {
    auto put = t_.put(key, "value");
    for (int i = 0; i < 64 && !put && put.error().code == Code::kBusy; ++i)
      put = t_.put(key, "value");
    return put;
  }
  StoreUnderTest t_{sixty_four_pairs()};
};

TEST_F(Flood, OnePairTakesSoManyAndNoMore) {
  const auto keys = chosen_keys(kMost + 400);
  std::uint32_t refused = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto put = put_patiently(keys[i]);
    ASSERT_EQ(put.has_value(), i < kMost) << i;
    if (put) continue;
    EXPECT_EQ(put.error().code, Code::kOutOfMemory);
    ++refused;
  }
  EXPECT_EQ(refused, 400U);
  EXPECT_EQ(t_.store.stats().stashed_records, Index::kLongestChain);
  for (std::uint32_t i = 0; i < kMost; ++i)
    ASSERT_EQ(t_.read_or_ask(keys[i]), "value") << i;
  EXPECT_FALSE(t_.get(keys[kMost]));

  // Whatever was there is served and changed as before, and a key that goes makes room for another.
  ASSERT_TRUE(t_.put(keys[0], "another value, of another length than the one before it was"));
  ASSERT_TRUE(t_.put(keys[kMost - 1], "and one in the stash, of another length as well"));
  ASSERT_TRUE(t_.remove(keys[7]));
  ASSERT_TRUE(t_.put(keys[kMost], "value"));
  EXPECT_FALSE(t_.put(keys[kMost + 1], "value"));
}

TEST_F(Flood, OtherPairsHaveTheRestOfTheStashAndNoMemoryIsTaken) {
  const auto keys = chosen_keys(kMost + 2'000);
  for (std::size_t i = 0; i < kMost; ++i)
    ASSERT_TRUE(put_patiently(keys[i]));
  ASSERT_FALSE(put_patiently(keys[kMost]));  // all splits that could have helped are made
  const std::uint64_t before = t_.store.stats().memory_bytes;
  for (std::size_t i = kMost; i < keys.size(); ++i)
    ASSERT_FALSE(t_.put(keys[i], "value"));
  EXPECT_EQ(t_.store.stats().memory_bytes, before);
  EXPECT_FALSE(t_.store.growth().wants_memory()) << "refusals of one pair are no reason to grow";
  std::uint32_t others = 0;
  for (std::uint64_t i = 0; others < 1'000; ++i) {
    const std::string key = fmt::format("other-{}", i);
    if (collides(key)) continue;
    ASSERT_TRUE(put_patiently(key)) << others;
    ++others;
  }
}

// Records that are loaded at a start have the same bound: the loading time does not grow with the
// square of the keys.
TEST_F(Flood, LoadingIsBoundedToo) {
  const auto keys = chosen_keys(kMost + 1'000);
  std::uint32_t loaded = 0;
  for (const std::string& key : keys) {
    const RecordFields record{
        .version = Version::of(1, 1), .key = as_bytes(key), .value = as_bytes("value")};
    bool done = false;
    for (int i = 0; i < 8 && !done; ++i)  // again, while the segment is being split
      done = t_.store.loader().load(record).has_value();
    loaded += done ? 1 : 0;
  }
  EXPECT_EQ(loaded, kMost);
}

}  // namespace
}  // namespace rkv::server
