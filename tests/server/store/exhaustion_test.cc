// Memory that ends at any point of a store's growth: between a split and the next, before an extent
// of the index or of the data. PUTs get a typed answer, nothing is lost, and the store goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

// Gives so many regions, then none until more are allowed.
struct Source {
  int left = kNever;
  int given = 0;
  Result<std::unique_ptr<rdma::Region>> operator()(std::size_t bytes) {
    if (given == left) return fail(Code::kOutOfMemory, "no more for this test");
    ++given;
    return testing::PlainRegion::make(bytes);
  }
};

// Both kinds of extents come one after the other, a few splits to each.
MemoryOptions growing_in_small_steps() {
  MemoryOptions options = growing_pairs();
  options.index_extent_bytes = 2 * 2 * kGroupBytes;
  return options;
}

class Exhaustion : public ::testing::Test {
 protected:
  static std::string key_of(int number) { return fmt::format("key{}", number); }
  static std::string value_of(int number, char letter) {
    return fmt::format("{}-", number) + std::string(1500, letter);
  }
  void create() {
    auto memory = StoreMemory::create(growing_in_small_steps(),
                                      [this](std::size_t bytes) { return source_(bytes); });
    ASSERT_TRUE(memory);
    at_start_ = source_.given;
    t_.emplace(std::move(*memory));
    keys_ = 0;
  }
  // Until there is no more room, or `most` keys. Returns the last answer.
  Result<PutResult> put_up_to(int most) {
    Result<PutResult> put = t_->put(key_of(keys_), value_of(keys_, 'a'));
    while (put && ++keys_ < most)
      put = t_->put(key_of(keys_), value_of(keys_, 'a'));
    // "Busy" is said before it is known that there is no more.
    if (!put && put.error().code == Code::kBusy) put = t_->put(key_of(keys_), "");
    return put;
  }
  void expect_intact() {
    ASSERT_EQ(t_->store.stats().records, static_cast<std::uint64_t>(keys_));
    for (int i = 0; i < keys_; ++i)
      ASSERT_EQ(t_->read_or_ask(key_of(i)), value_of(i, 'a')) << i;
    ASSERT_EQ(t_->read_or_ask(key_of(keys_)), std::nullopt) << "a refused PUT leaves nothing";
  }
  // In place, by taking room, and by giving some back.
  void expect_usable() {
    for (int i = 0; i < keys_; i += 3)
      ASSERT_TRUE(t_->put(key_of(i), value_of(i, 'b'))) << i;
    for (int i = 0; i < keys_; i += 3) {
      ASSERT_EQ(t_->read_or_ask(key_of(i)), value_of(i, 'b')) << i;
      ASSERT_TRUE(t_->remove(key_of(i)));
    }
    for (int i = 0; i < keys_; i += 3)
      ASSERT_TRUE(t_->put(key_of(i), value_of(i, 'a'))) << i;
  }

  Source source_;
  std::optional<StoreUnderTest> t_;
  int at_start_ = 0;
  int keys_ = 0;
};

TEST_F(Exhaustion, AtEveryPointOfTheGrowth) {
  constexpr int kEnough = 4000;
  create();
  const auto full = put_up_to(kEnough);
  const int all = source_.given;
  const int keys_when_full = keys_;
  const std::uint64_t splits = t_->store.stats().index_splits;
  ASSERT_GE(splits, 40U);
  ASSERT_GE(all - at_start_, 25);
  ASSERT_TRUE(full) << "the limit is not what this test is about";

  for (int regions = at_start_; regions < all; ++regions) {
    SCOPED_TRACE(fmt::format("{} regions, no more", regions));
    source_ = {.left = regions};
    ASSERT_NO_FATAL_FAILURE(create());
    const auto refused = put_up_to(kEnough);
    if (refused) {
      EXPECT_GE(regions, all - 2) << "the last ones are made ahead of need";
      continue;
    }
    EXPECT_EQ(refused.error().code, Code::kOutOfMemory) << to_string(refused.error());
    ASSERT_NO_FATAL_FAILURE(expect_intact());
    ASSERT_NO_FATAL_FAILURE(expect_usable());
    ASSERT_NO_FATAL_FAILURE(expect_intact());

    source_.left = kNever;  // there is memory again
    const auto grown = t_->store.growth().grow();
    ASSERT_TRUE(grown);
    EXPECT_TRUE(*grown);
    const auto put = put_up_to(kEnough);
    ASSERT_TRUE(put) << to_string(put.error());
    EXPECT_EQ(keys_, keys_when_full);
    EXPECT_GE(t_->store.stats().index_splits, splits / 2) << "what waited has been made up for";
    ASSERT_NO_FATAL_FAILURE(expect_intact());
  }
}

}  // namespace
}  // namespace rkv::server
