// The book-keeping of one extent against a plain list of what was allocated,
// and a checker of its invariants that is shown to catch their violation.
#include "server/memory/extent_space.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/random.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

constexpr std::uint32_t kPages = 96;
constexpr std::uint32_t kUnits = kPages * kPageUnits;

class Space : public ::testing::Test {
 protected:
  Space() : pages_(kPages + 1), bins_(std::make_unique<ExtentSpace::Bins>()) {
    space_.open(kUnits, pages_.data(), bins_.get(), &free_units_);
  }
  bool starts(std::uint32_t unit) const { return bit(&ExtentSpace::Page::starts, unit); }
  bool is_free(std::uint32_t unit) const { return bit(&ExtentSpace::Page::free, unit); }
  bool bit(std::array<std::uint64_t, 2> ExtentSpace::Page::* bits, std::uint32_t unit) const {
    const ExtentSpace::Page& page = pages_[unit / kPageUnits + 1];
    return ((page.*bits)[unit / 64 % 2] >> (unit % 64) & 1) != 0;
  }

  // Returns what is wrong; empty: nothing. Fills items_: first unit to length.
  std::string violation() {
    items_.clear();
    for (std::uint32_t unit = 0; unit < kUnits; ++unit) {
      if (is_free(unit) && !starts(unit)) return fmt::format("unit {}: free, but no start", unit);
      if (starts(unit)) items_[unit] = 0;
    }
    if (!items_.contains(0)) return "nothing starts at 0";
    for (auto item = items_.begin(); item != items_.end(); ++item) {
      const auto after = std::next(item);
      item->second = (after == items_.end() ? kUnits : after->first) - item->first;
    }
    for (const auto& [unit, units] : items_) {
      if (std::string wrong = violation_of(unit, units); !wrong.empty()) return wrong;
    }
    return violation_of_lists();
  }
  std::string violation_of(std::uint32_t unit, std::uint32_t units) const {
    const bool last = (unit + units) / kPageUnits != unit / kPageUnits;
    if (last && pages_[unit / kPageUnits + 1].last_units != units)
      return fmt::format("unit {}: its length (EXTENT-1)", unit);
    const std::uint32_t end = (unit + units - 1) / kPageUnits;
    if (end != unit / kPageUnits && pages_[end + 1].entered_from != unit)
      return fmt::format("unit {}: the page where it ends does not know (EXTENT-1)", unit);
    if (unit + units < kUnits && unit + units != closed_.unit && is_free(unit) &&
        is_free(unit + units))
      return fmt::format("unit {}: free as the next one is (EXTENT-2)", unit);
    return {};
  }
  std::string violation_of_lists() const {
    std::map<std::uint32_t, std::uint32_t> longest;  // by page
    std::uint64_t free_units = 0;
    for (const auto& [unit, units] : items_) {
      if (!is_free(unit)) continue;
      if (units >= kPageUnits) free_units += units;
      if (unit - closed_.unit < closed_.units) continue;  // EXTENT-5
      std::uint32_t& most = longest[unit / kPageUnits + 1];
      most = std::max(most, units);
    }
    for (std::uint32_t bin = 0; bin < ExtentSpace::kBins; ++bin) {
      const bool used = (bins_->used[bin / 64] >> (bin % 64) & 1) != 0;
      if (used != (bins_->first[bin] != 0)) return fmt::format("bin {}: its bit (EXTENT-3)", bin);
      std::uint32_t previous = 0;
      for (std::uint32_t page = bins_->first[bin]; page != 0; page = pages_[page].next) {
        const auto found = longest.find(page);
        if (found == longest.end() || pages_[page].longest != found->second ||
            ExtentSpace::bin_of(found->second) != bin || pages_[page].previous != previous)
          return fmt::format("page {}: in bin {} (EXTENT-3)", page, bin);
        longest.erase(found);
        previous = page;
      }
    }
    for (std::uint32_t word = 0; word < ExtentSpace::kBinWords; ++word) {
      if ((bins_->used_words >> word & 1) != (bins_->used[word] != 0 ? 1U : 0U))
        return fmt::format("word {} of the bins: its bit (EXTENT-3)", word);
    }
    if (!longest.empty())
      return fmt::format("page {}: in no bin (EXTENT-3)", longest.begin()->first);
    return free_units == free_units_ ? "" : "units in long free runs";
  }

  std::vector<ExtentSpace::Page> pages_;
  std::unique_ptr<ExtentSpace::Bins> bins_;
  std::atomic<std::uint64_t> free_units_{0};
  ExtentSpace space_;
  std::map<std::uint32_t, std::uint32_t> items_;
  ExtentSpace::Item closed_{.unit = kUnits};  // what is closed now
};

std::uint32_t any_length(Random& random) {
  const std::uint32_t top = 1U << random.below(11);
  return top + static_cast<std::uint32_t>(random.below(top));
}

TEST_F(Space, KeepsItsInvariantsThroughRandomOperations) {
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 2 : 8); ++seed) {
    Random random(seed);
    std::map<std::uint32_t, std::uint32_t> blocks;
    const auto free_one = [&] {
      auto victim = blocks.lower_bound(static_cast<std::uint32_t>(random.below(kUnits)));
      if (victim == blocks.end()) victim = blocks.begin();
      space_.release(victim->first, victim->second);
      blocks.erase(victim);
    };
    const std::uint64_t mode = seed % 3;  // all lengths, short ones, up to a few pages
    for (int i = 0; i < 3'000; ++i) {
      const std::uint32_t units =
          mode == 0 ? any_length(random)
                    : static_cast<std::uint32_t>(1 + random.below(mode == 1 ? 5 : 400));
      const bool ahead = random.below(4) == 0;
      const std::uint32_t most = ahead ? 1 + static_cast<std::uint32_t>(random.below(30)) : 1;
      const ExtentSpace::Blocks taken = space_.allocate(units, most);
      for (std::uint32_t k = 0; k < taken.count; ++k)
        ASSERT_TRUE(blocks.emplace(taken.first + k * units, units).second);
      if (taken.count == 0 || random.below(3) == 0) free_one();
      if (i % 10 != 0) continue;
      ASSERT_EQ(violation(), "") << "seed " << seed << ", step " << i;
      for (const auto& [unit, length] : blocks) {
        ASSERT_TRUE(items_.contains(unit) && items_[unit] == length && !is_free(unit)) << unit;
        items_.erase(unit);
      }
      for (const auto& [unit, length] : items_)
        ASSERT_TRUE(is_free(unit)) << unit << ": " << length << " units that nobody has";
    }
    while (!blocks.empty())
      free_one();
    ASSERT_EQ(violation(), "");
    EXPECT_EQ(items_.size(), 1U) << "one free run of everything";
  }
}

TEST_F(Space, TakesTheRunThatFitsBest) {
  const std::array<std::uint32_t, 6> lengths = {40, 9, 200, 10, 1000, 12};
  std::vector<std::uint32_t> gaps;
  for (const std::uint32_t units : lengths) {
    gaps.push_back(space_.allocate(units, 1).first);
    ASSERT_EQ(space_.allocate(1, 1).count, 1U);
  }
  const std::uint32_t rest = space_.allocate(kUnits - 1277, 1).first;
  ASSERT_EQ(rest, 1277U) << "nothing else is free";
  EXPECT_EQ(space_.fit(1), ExtentSpace::kNoFit);
  for (std::size_t i = 0; i < gaps.size(); ++i)
    space_.release(gaps[i], lengths[i]);
  EXPECT_EQ(space_.allocate(10, 1).first, gaps[3]);
  EXPECT_EQ(space_.allocate(10, 1).first, gaps[5]);
  EXPECT_EQ(space_.allocate(180, 1).first, gaps[2]);
  EXPECT_EQ(space_.allocate(10, 5).count, 1U) << "short runs are not cut ahead";
  EXPECT_EQ(space_.allocate(201, 1).first, gaps[4]);
  EXPECT_EQ(space_.allocate(100, 9).count, 7U) << "as many as there is room for";
  EXPECT_EQ(space_.allocate(100, 1).count, 0U);
  EXPECT_EQ(violation(), "");
}

// EXTENT-5, and that the rest goes on: others allocate and release while one clears a range.
TEST_F(Space, NobodyGetsWhatIsFreeInAClosedRange) {
  int cleared = 0;
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 10 : 60); ++seed) {
    Random random(seed);
    std::map<std::uint32_t, std::uint32_t> blocks;
    const auto below = [&](std::uint32_t bound) {
      return static_cast<std::uint32_t>(random.below(bound));
    };
    const auto take = [&] {
      const std::uint32_t units = random.below(8) == 0 ? any_length(random) : 1 + below(9);
      const ExtentSpace::Blocks taken = space_.allocate(units, 1 + below(20));
      for (std::uint32_t k = 0; k < taken.count; ++k) {
        const std::uint32_t unit = taken.first + k * units;
        ASSERT_TRUE(unit + units <= closed_.unit || unit >= closed_.unit + closed_.units);
        ASSERT_TRUE(blocks.emplace(unit, units).second);
      }
    };
    const auto give = [&](std::map<std::uint32_t, std::uint32_t>::iterator which) {
      if (which == blocks.end()) return;
      space_.release(which->first, which->second);
      blocks.erase(which);
    };
    const auto give_any = [&] { give(blocks.lower_bound(below(kUnits))); };
    while (space_.longest_free() > kUnits / 8)
      take();
    for (int i = 0; i < 2'000; ++i)
      give_any();
    const std::uint32_t length = 1 + below(kUnits / 2);
    const std::uint32_t begin = below(kUnits - length);
    closed_.unit = space_.close(begin, begin + length);
    ASSERT_LE(closed_.unit, begin);
    closed_.units = begin + length - closed_.unit;
    for (int i = 0; i < 200; ++i) {
      random.below(2) == 0 ? take() : give_any();
      if (i % 10 != 0) continue;
      ASSERT_EQ(violation(), "") << "seed " << seed << ", step " << i;
    }
    const bool clears = random.below(4) != 0;
    std::array<ExtentSpace::Item, 7> found;
    for (std::uint32_t at = closed_.unit; clears && at < begin + length;) {
      const std::size_t count = space_.blocks_in(&at, begin + length, found);
      for (const ExtentSpace::Item& item : std::span(found).first(count)) {
        ASSERT_TRUE(blocks.contains(item.unit) && blocks[item.unit] == item.units);
        give(blocks.find(item.unit));
      }
    }
    ASSERT_EQ(violation(), "") << "seed " << seed;
    if (clears) {
      const std::uint32_t each = 1 + below(length);
      const ExtentSpace::Blocks run = space_.allocate_closed(each, 3);
      ASSERT_EQ(run.first, closed_.unit);
      ASSERT_GE(run.count, std::min(3U, length / each));
      for (std::uint32_t k = 0; k < run.count; ++k)
        ASSERT_TRUE(blocks.emplace(run.first + k * each, each).second);
      ++cleared;
    }
    space_.reopen();
    closed_ = {.unit = kUnits};
    ASSERT_EQ(violation(), "") << "seed " << seed;
    while (!blocks.empty())
      give(blocks.begin());
    ASSERT_EQ(violation(), "");
    EXPECT_EQ(items_.size(), 1U) << "one free run of everything";
  }
  EXPECT_GT(cleared, 5);
}

TEST_F(Space, TheLongestFreeRunIsKnownToAThirtySecond) {
  for (std::uint32_t units = 1; units < kUnits; units += 1 + units / 7) {
    ASSERT_EQ(space_.allocate(units, 1).count, 1U);
    const std::uint32_t rest = kUnits - units;
    EXPECT_LE(space_.longest_free(), rest);
    EXPECT_GT(space_.longest_free() + rest / 32 + 1, rest);
    space_.release(0, units);
  }
  ASSERT_EQ(space_.allocate(kUnits, 1).count, 1U);
  EXPECT_EQ(space_.longest_free(), 0U);
}

TEST_F(Space, EachUnitBelongsToAnItem) {
  const std::uint32_t longer = space_.allocate(3 * kPageUnits, 1).first;
  const std::uint32_t shorter = space_.allocate(20, 1).first;
  ASSERT_EQ(longer, 0U);
  ASSERT_EQ(shorter, 3 * kPageUnits);
  for (const std::uint32_t unit : {0U, kPageUnits + 1, 3 * kPageUnits - 1}) {
    EXPECT_EQ(space_.item_of(unit).unit, longer) << unit;
    EXPECT_EQ(space_.item_of(unit).units, 3 * kPageUnits) << unit;
  }
  EXPECT_EQ(space_.item_of(shorter + 19).unit, shorter);
  EXPECT_EQ(space_.item_of(shorter + 20).unit, shorter + 20);
  EXPECT_EQ(space_.item_of(kUnits - 1).unit, shorter + 20);
  EXPECT_EQ(space_.item_of(kUnits - 1).units, kUnits - shorter - 20);
}

// Each of these is what one forgotten line of the code would do.
TEST_F(Space, TheCheckerCatchesViolations) {
  const std::uint32_t first = space_.allocate(300, 1).first;
  const std::uint32_t second = space_.allocate(20, 1).first;
  ASSERT_EQ(space_.allocate(100, 1).count,
            1U);  // so that the rest starts in another page
  space_.release(second, 20);
  ASSERT_EQ(violation(), "");
  ASSERT_EQ(first, 0U);
  ASSERT_EQ(second, 300U);
  const auto pages = pages_;
  const ExtentSpace::Bins bins = *bins_;
  const auto caught = [&](const char* what) {
    EXPECT_NE(violation(), "") << what;
    pages_ = pages;
    *bins_ = bins;
    ASSERT_EQ(violation(), "");
  };
  pages_[1].last_units = 299;
  caught("length of a block");
  pages_[3].entered_from = 1;
  caught("start of the block that ends in a page");
  pages_[3].free[0] &= ~(std::uint64_t{1} << (second % 64));
  caught("a free run that is called a block");
  pages_[3].free[1] |= std::uint64_t{1} << 63;
  caught("free where nothing starts");
  pages_[3].free = pages_[3].starts;
  caught("free neighbours");
  pages_[3].longest -= 1;
  caught("the longest run of a page");
  bins_->first[ExtentSpace::bin_of(pages_[3].longest)] = 0;
  caught("a page in no list");
  bins_->used[0] = 0;
  caught("a bin that is not empty");
  bins_->used_words = 0;
  caught("a word of bins that is not empty");
  free_units_ += 1;
  EXPECT_NE(violation(), "") << "units in long free runs";
  free_units_ -= 1;
}

TEST_F(Space, ReleasingWhatIsNoBlockEndsTheProcess) {
  const std::uint32_t block = space_.allocate(7, 1).first;
  const std::uint32_t neighbour = space_.allocate(4, 1).first;
  ASSERT_EQ(neighbour, block + 7);
  EXPECT_DEATH(space_.release(block + 1, 6), "freed twice");
  EXPECT_DEATH(space_.release(block, 6), "another length");
  EXPECT_DEATH(space_.release(block, 11), "another length") << "with the neighbour's units";
  space_.release(block, 7);
  EXPECT_DEATH(space_.release(block, 7), "freed twice");
}

}  // namespace
}  // namespace rkv::server
