// The effect of pins on a store: records move while they count, and nothing else changes.
#include "server/store/pins.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

class PinnedStore : public ::testing::Test {
 protected:
  PinnedStore() {
    t_.store.records().add_hint_words(hints_.data());
    tick(100'000);
    EXPECT_TRUE(t_.put("k", "1"));
  }
  void tick(std::uint64_t ms) { t_.memory->set_tick(ms); }
  void pin(std::string_view key, std::uint64_t tick_ms) {
    hints_[t_.memory->hash(as_bytes(key)).stripe()] = HintWord{.tick_ms = tick_ms}.encode();
  }
  bool put_moves() {
    const std::uint64_t moved = t_.store.stats().puts_moved;
    EXPECT_TRUE(t_.put("k", "2"));
    return t_.store.stats().puts_moved > moved;
  }

  std::vector<std::uint64_t> hints_ = std::vector<std::uint64_t>(kHintWords);
  StoreUnderTest t_{small_memory()};
};

TEST_F(PinnedStore, RecordsMoveWithinTheWindow) {
  EXPECT_FALSE(put_moves());
  pin("k", 100'000);
  EXPECT_TRUE(put_moves());
  tick(100'000 + kPinWindowMs);
  EXPECT_TRUE(put_moves());
  tick(100'000 + kPinWindowMs + 1);
  EXPECT_FALSE(put_moves());
  pin("k", 100'000 + kPinWindowMs + 3);
  EXPECT_FALSE(put_moves()) << "a tick that has not come";
}

TEST_F(PinnedStore, OnlyTheStripeOfTheKey) {
  for (std::size_t stripe = 0; stripe < kHintWords; ++stripe) {
    if (stripe == t_.memory->hash(as_bytes("k")).stripe()) continue;
    hints_[stripe] = HintWord{.tick_ms = 100'000}.encode();
  }
  EXPECT_FALSE(put_moves());
}

// A stripe that is pinned without end, with any tick, is taken for pinned half of the time.
TEST_F(PinnedStore, PinningForEverHasItsLimit) {
  std::uint64_t moved = 0;
  constexpr std::uint64_t kSpan = 20 * Pins::kPinLimitMs;
  for (std::uint64_t ms = 0; ms < kSpan; ms += 10) {
    tick(100'000 + ms);
    pin("k", 100'000 + ms);
    moved += put_moves() ? 10 : 0;
  }
  EXPECT_GE(moved, kSpan * 4 / 10);
  EXPECT_LE(moved, kSpan * 6 / 10);
  for (const std::uint64_t word : {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1}}) {
    hints_.assign(kHintWords, word);
    tick(300'000);
    EXPECT_FALSE(put_moves());
  }
}

TEST_F(PinnedStore, NothingIsKeptForAClient) {
  hints_.assign(kHintWords, HintWord{.tick_ms = 100'000}.encode());
  const StoreStats before = t_.store.stats();
  for (int i = 0; i < 10'000; ++i)
    ASSERT_TRUE(t_.put("k", "3"));
  EXPECT_EQ(t_.store.stats().data_bytes_used, before.data_bytes_used);
  EXPECT_EQ(t_.store.stats().records, before.records);
  for (const std::uint64_t word : hints_)
    ASSERT_EQ(word, HintWord{.tick_ms = 100'000}.encode()) << "the server writes no hint word";
}

}  // namespace
}  // namespace rkv::server
