// RunMaker on an allocator alone: what it says of a length for which it found no room.
#include "server/store/run_maker.h"

#include <gtest/gtest.h>

#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

class Runs : public ::testing::Test {
 protected:
  // Of the extent: there is only one.
  static constexpr std::uint64_t kUnits = (std::size_t{1} << 20) / kUnitBytes;
  void SetUp() override {
    ASSERT_EQ(blocks().extents(), 1U);
    ASSERT_EQ(blocks().units_in(0), kUnits);
  }

  RecordAllocator& blocks() { return table_.blocks(); }
  // A block of so many units that begins at `unit`. All else is free.
  Location hold(std::uint64_t unit, std::uint64_t units) {
    const auto before = blocks().allocate(unit);
    const auto held = blocks().allocate(units);
    EXPECT_TRUE(before && held && held->unit() == unit);
    blocks().release_unwritten(*before, unit);
    return *held;
  }
  bool make(std::uint64_t units) {
    runs_.ask(units);
    return runs_.make([this] { ++weighed_; });
  }
  void expect_room_for(std::uint64_t units) {
    EXPECT_TRUE(make(units));
    const auto block = runs_.take(units);
    ASSERT_TRUE(block);
    blocks().release_unwritten(*block, units);
  }

  std::unique_ptr<StoreMemory> memory_ = testing::make_plain_memory(growing_pairs());
  ManualClock clock_;
  RecordTable table_{*memory_, clock_};
  int weighed_ = 0;  // stretches
  RunMaker runs_{table_, clock_, [](const Target&, Location, std::uint64_t) {
                   ADD_FAILURE() << "a record was moved, and none lies here";
                 }};
};

// The thread that holds it may not run while all stretches are tried.
TEST_F(Runs, AShortBlockThatIsBeingWrittenMakesNoLengthHopeless) {
  constexpr std::uint64_t kLong = kUnits / 4 * 3;
  constexpr std::uint64_t kShort = 100;
  const Location held = hold(kUnits / 2, kShort);
  EXPECT_FALSE(make(kLong));
  EXPECT_FALSE(runs_.is_hopeless(kLong));
  // Nor are all stretches tried again at once, each time that somebody asks.
  const int weighed = weighed_;
  EXPECT_FALSE(make(kLong));
  EXPECT_EQ(weighed_, weighed);
  clock_.advance(20 * kNanosPerMs);
  EXPECT_FALSE(make(kLong));
  EXPECT_GT(weighed_, weighed);
  blocks().release_unwritten(held, kShort);
  expect_room_for(kLong);
}

TEST_F(Runs, ALengthIsHopelessForASecondHoweverOftenItIsAskedFor) {
  constexpr std::uint64_t kLong = kUnits / 2;
  constexpr std::uint64_t kStays = kUnits / 4;  // half as long as asked: never moved for it
  const Location held = hold(kUnits / 8 * 3, kStays);
  EXPECT_FALSE(make(kLong));
  EXPECT_TRUE(runs_.is_hopeless(kLong));
  clock_.advance(600 * kNanosPerMs);
  EXPECT_FALSE(make(kLong));
  EXPECT_TRUE(runs_.is_hopeless(kLong));
  clock_.advance(600 * kNanosPerMs);
  EXPECT_FALSE(runs_.is_hopeless(kLong));
  blocks().release_unwritten(held, kStays);
  expect_room_for(kLong);
}

}  // namespace
}  // namespace rkv::server
