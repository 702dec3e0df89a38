#include "server/memory/record_allocator.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/server/store/store_fixture.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

TEST(SizeClasses, RiseWithTheSizeAndAnEighthIsAllThatOneSpans) {
  const std::uint64_t longest = record_units(kMaxInlineRecordBytes);
  std::uint64_t first_of_class = 1;
  for (std::uint64_t units = 2; units <= longest; ++units) {
    const std::uint32_t below = size_class_of(units - 1);
    if (size_class_of(units) != below) {
      ASSERT_EQ(size_class_of(units), below + 1) << units;
      first_of_class = units;
    }
    if (units <= 16) {
      EXPECT_EQ(first_of_class, units);
    }
    EXPECT_LE((units - first_of_class) * 8, units) << units;
  }
  EXPECT_EQ(size_class_of(longest + 1), size_class_of(longest) + 1)
      << "large values, by themselves";
  EXPECT_EQ(size_class_of(record_units(kMaxRecordBytes)), size_class_of(longest + 1));
}

class Allocator : public ::testing::Test {
 protected:
  static MemoryOptions two_extents() {
    MemoryOptions options = small_memory();
    options.data_extent_bytes = std::size_t{8} << 20;
    return options;
  }
  static std::unique_ptr<StoreMemory> make_memory() {
    auto memory = testing::make_plain_memory(two_extents());
    add_all_data_extents(*memory);
    return memory;
  }
  std::unique_ptr<StoreMemory> memory_ = make_memory();
  ManualClock clock_;
  RecordAllocator records_{*memory_, clock_};
  static constexpr std::uint64_t kMaxUnits = record_units(kMaxInlineRecordBytes);
};

TEST_F(Allocator, BlocksDoNotOverlapAndLieInTheExtents) {
  // Every unit is marked by its owner; an overlap would find it marked.
  std::set<std::uint64_t> taken;
  for (std::uint64_t units = 1; units <= kMaxUnits; units += 1 + units / 9) {
    for (int i = 0; i < 3; ++i) {
      const auto block = records_.allocate(units);
      ASSERT_TRUE(block);
      memory_->record(*block, units);  // aborts when outside
      for (std::uint64_t u = 0; u < units; ++u)
        ASSERT_TRUE(taken.insert(block->bits + u).second) << units;
    }
  }
}

TEST_F(Allocator, FreedBlocksWaitTheirTime) {
  const auto first = records_.allocate(3);
  records_.release(*first, 3);
  EXPECT_EQ(records_.usage().used_bytes, 0U);
  EXPECT_EQ(records_.usage().waiting_bytes, 3 * kUnitBytes);
  EXPECT_NE(records_.allocate(3)->bits, first->bits);
  clock_.advance(RecordAllocator::kDefaultMinAge);
  EXPECT_EQ(records_.allocate(3)->bits, first->bits);
  EXPECT_EQ(records_.usage().waiting_bytes, 0U);
}

TEST_F(Allocator, WaitingIsCutShortWhenMemoryIsExhausted) {
  std::vector<Location> blocks;
  while (const auto block = records_.allocate(kMaxUnits))
    blocks.push_back(*block);
  EXPECT_GE(blocks.size() * kMaxInlineRecordBytes * 10, records_.usage().capacity_bytes * 9);
  EXPECT_FALSE(records_.allocate(kMaxUnits));
  records_.release(blocks.back(), kMaxUnits);
  EXPECT_TRUE(records_.allocate(kMaxUnits)) << "its time is not over, but there is no other";
}

TEST_F(Allocator, TooManyWaitingBlocksGoBackEarly) {
  std::vector<Location> blocks;
  blocks.reserve(RecordAllocator::kMaxWaiting + 500);
  for (std::uint32_t i = 0; i < RecordAllocator::kMaxWaiting + 500; ++i)
    blocks.push_back(*records_.allocate(1));
  for (const Location block : blocks)
    records_.release(block, 1);
  EXPECT_LE(records_.usage().waiting_bytes, (RecordAllocator::kMaxWaiting + 1) * kUnitBytes);
}

TEST_F(Allocator, EmptySpansServeOtherSizes) {
  std::vector<Location> small;
  while (const auto block = records_.allocate(2))
    small.push_back(*block);
  EXPECT_FALSE(records_.allocate(kMaxUnits));
  for (const Location block : small)
    records_.release(block, 2);
  EXPECT_EQ(records_.usage().used_bytes, 0U);
  std::uint64_t large = 0;
  while (records_.allocate(kMaxUnits))
    ++large;
  EXPECT_GE(large * kMaxInlineRecordBytes * 10, records_.usage().capacity_bytes * 9)
      << "nearly all of the memory, after it had been cut into 64-byte blocks";
}

TEST_F(Allocator, FreeingTwiceEndsTheProcess) {
  const auto block = *records_.allocate(5);
  const auto other = *records_.allocate(5);  // keeps the span in use
  records_.release(block, 5);
  records_.release(block, 5);
  clock_.advance(RecordAllocator::kDefaultMinAge);
  EXPECT_DEATH(records_.release(other, 5), "freed twice");
}

}  // namespace
}  // namespace rkv::server
