// Distributions against exact probabilities: chi-square with fixed seeds, so that the tests say the
// same every time. The bound is five standard deviations above the mean of the statistic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "bench/kvbench/generators.h"

namespace rkv::kvbench {
namespace {

constexpr std::uint64_t kDraws = 400'000;

double chi_square(const std::vector<std::uint64_t>& counts, const std::vector<double>& chances) {
  const auto draws =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * chances[i];
    sum += (static_cast<double>(counts[i]) - expected) *
           (static_cast<double>(counts[i]) - expected) / expected;
  }
  return sum;
}

double bound(std::size_t cells) {
  const auto freedom = static_cast<double>(cells - 1);
  return freedom + 5 * std::sqrt(2 * freedom);
}

template <class Draw>
std::vector<std::uint64_t> histogram(std::size_t cells, Draw draw) {
  std::vector<std::uint64_t> counts(cells);
  for (std::uint64_t i = 0; i < kDraws; ++i)
    ++counts.at(draw());
  return counts;
}

// The chance of each rank by the published algorithm, worked out backwards: the u below which the
// rank is reached. Ranks 0 and 1 have their exact zipfian chances.
class ZipfianChances {
 public:
  ZipfianChances(double items, double zeta_of_items) : items_(items), zeta_(zeta_of_items) {
    const double two = 1 + std::pow(0.5, 0.99);
    eta_ = (1 - std::pow(2 / items, 0.01)) / (1 - two / zeta_);
  }
  double below(double rank) const {
    if (rank <= 0) return 0;
    if (rank <= 1) return 1 / zeta_;
    const double first_two = (1 + std::pow(0.5, 0.99)) / zeta_;
    return std::max(first_two, (std::pow(rank / items_, 0.01) + eta_ - 1) / eta_);
  }
  double of(double rank) const { return below(rank + 1) - below(rank); }

 private:
  double items_;
  double zeta_;
  double eta_;
};

TEST(Zipfian, FollowsItsChances) {
  constexpr std::size_t kItems = 100;
  Random random(1);
  const Zipfian zipfian(1, kItems);
  const auto counts = histogram(kItems, [&] { return zipfian.next(random) - 1; });
  const ZipfianChances chances(kItems, zeta(1, kItems, kZipfianConstant));
  std::vector<double> expected;
  for (std::size_t i = 0; i < kItems; ++i)
    expected.push_back(chances.of(static_cast<double>(i)));
  EXPECT_NEAR(std::accumulate(expected.begin(), expected.end(), 0.0), 1, 1e-9);
  EXPECT_LT(chi_square(counts, expected), bound(kItems));
}

// Uniform draws are no zipfian ones: the check above would see them.
TEST(Zipfian, TheCheckSeesAnotherDistribution) {
  constexpr std::size_t kItems = 100;
  Random random(1);
  const auto counts = histogram(kItems, [&] { return random.below(kItems); });
  const ZipfianChances chances(kItems, zeta(1, kItems, kZipfianConstant));
  std::vector<double> expected;
  for (std::size_t i = 0; i < kItems; ++i)
    expected.push_back(chances.of(static_cast<double>(i)));
  EXPECT_GT(chi_square(counts, expected), 100 * bound(kItems));
}

TEST(Zipfian, FewItemsAndExtremeDrawsStayWithin) {
  for (std::uint64_t items = 1; items <= 5; ++items) {
    const Zipfian zipfian(10, 10 + items - 1);
    for (const double u : {0.0, 0.3, 0.6, 0.9, 1 - 0x1p-53}) {
      EXPECT_GE(zipfian.at(u), 10U);
      EXPECT_LT(zipfian.at(u), 10 + items);
    }
  }
}

TEST(Zipfian, GrowsToTheSameSumAsOneMadeAtOnce) {
  Zipfian grown(0, 99);
  grown.grow(100'000);
  EXPECT_EQ(grown.items(), 100'000U);
  const Zipfian whole(0, 99'999);
  EXPECT_EQ(grown.at(0.03), whole.at(0.03));
  EXPECT_EQ(grown.at(0.999999999) > 99'000, true);
}

// One term after the other, as YCSB does.
TEST(Zeta, IsTheSum) {
  for (const auto& [first, last] : {std::pair{1, 5},
                                    {1, 10'000},
                                    {1, 10'001},
                                    {1, 1'000'000},
                                    {7, 300'000},
                                    {400'000, 400'001},
                                    {400'000, 900'000}}) {
    double sum = 0;
    for (int i = first; i <= last; ++i)
      sum += 1 / std::pow(i, kZipfianConstant);
    EXPECT_NEAR(zeta(static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(last),
                     kZipfianConstant) /
                    sum,
                1, 1e-12)
        << first << ' ' << last;
  }
}

// YCSB's constant for 10^10 items: it has added them all. No sum takes long here.
TEST(ScrambledZipfian, ItsConstantIsTheSumOverTenBillionItems) {
  EXPECT_NEAR(zeta(1, ScrambledZipfian::kItems, kZipfianConstant), ScrambledZipfian::kZetaOfItems,
              1e-9);
}

std::vector<double> scrambled_chances(std::size_t records) {
  constexpr std::uint64_t kEnumerated = 2'000'000;  // the rest is spread evenly
  const ScrambledZipfian zipfian(0, records - 1);
  const ZipfianChances chances(1e10 + 1, ScrambledZipfian::kZetaOfItems);
  std::vector<double> expected(records);
  for (std::uint64_t rank = 0; rank < kEnumerated; ++rank)
    expected[zipfian.scatter(rank)] += chances.of(static_cast<double>(rank));
  const double rest = 1 - chances.below(static_cast<double>(kEnumerated));
  for (double& one : expected)
    one += rest / static_cast<double>(records);
  return expected;
}

TEST(ScrambledZipfian, FollowsItsChancesOverAThousandRecords) {
  constexpr std::size_t kRecords = 1000;
  Random random(2);
  const ScrambledZipfian zipfian(0, kRecords - 1);
  const auto counts = histogram(kRecords, [&] { return zipfian.next(random); });
  EXPECT_LT(chi_square(counts, scrambled_chances(kRecords)), bound(kRecords));
}

TEST(ScrambledZipfian, TheHottestOfAThousandRecords) {
  constexpr std::size_t kRecords = 1000;
  constexpr std::uint64_t kHottest[] = {211, 620, 393, 802, 769};
  const ScrambledZipfian zipfian(0, kRecords - 1);
  for (std::uint64_t rank = 0; rank < 5; ++rank)
    EXPECT_EQ(zipfian.scatter(rank), kHottest[rank]);
  const std::vector<double> chances = scrambled_chances(kRecords);
  EXPECT_NEAR(chances[211], 0.039, 0.0005);
  std::vector<std::uint64_t> order(kRecords);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::greater<>{}, [&](std::uint64_t i) { return chances[i]; });
  EXPECT_TRUE(std::equal(std::begin(kHottest), std::end(kHottest), order.begin()));
  Random random(3);
  const auto counts = histogram(kRecords, [&] { return zipfian.next(random); });
  EXPECT_NEAR(static_cast<double>(counts[211]) / kDraws, 0.039, 0.001);
}

TEST(ScrambledZipfian, BeginsAtTheLeastRecord) {
  const ScrambledZipfian zipfian(500, 1499);
  EXPECT_EQ(zipfian.scatter(0), 711U);
}

// Record 0 is never chosen, as in YCSB: distances are those of one record less.
TEST(Latest, IsZipfianInTheDistanceFromTheNewest) {
  constexpr std::size_t kRecords = 200;
  Random random(4);
  Latest latest(kRecords);
  auto counts = histogram(kRecords, [&] { return kRecords - 1 - latest.next(random, kRecords); });
  EXPECT_EQ(counts.back(), 0U);
  counts.pop_back();
  const ZipfianChances chances(kRecords - 1, zeta(1, kRecords - 1, kZipfianConstant));
  std::vector<double> expected;
  for (std::size_t i = 0; i + 1 < kRecords; ++i)
    expected.push_back(chances.of(static_cast<double>(i)));
  EXPECT_LT(chi_square(counts, expected), bound(kRecords - 1));
}

TEST(Latest, FollowsNewRecords) {
  Random random(5);
  Latest latest(100);
  std::uint64_t newest_chosen = 0;
  for (std::uint64_t end = 100; end < 1100; ++end) {
    const std::uint64_t record = latest.next(random, end);
    ASSERT_LT(record, end);
    newest_chosen = std::max(newest_chosen, record);
  }
  EXPECT_GT(newest_chosen, 1000U);
  Latest only(1);
  EXPECT_EQ(only.next(random, 1), 0U);
}

TEST(Uniform, FollowsItsChances) {
  Random random(6);
  const Uniform uniform(50, 149);
  const auto counts = histogram(100, [&] { return uniform.next(random) - 50; });
  EXPECT_LT(chi_square(counts, std::vector<double>(100, 0.01)), bound(100));
}

TEST(Hotspot, TheFirstFifthGetsFourFifths) {
  Random random(7);
  const Hotspot hotspot(0, 99, 0.2, 0.8);
  std::vector<double> chances(100, 0.2 / 80);
  std::fill(chances.begin(), chances.begin() + 20, 0.8 / 20);
  EXPECT_LT(chi_square(histogram(100, [&] { return hotspot.next(random); }), chances), bound(100));
}

TEST(Hotspot, AnEmptySetGetsNothing) {
  Random random(8);
  const Hotspot none_hot(0, 3, 0.1, 0.8);
  const Hotspot none_cold(0, 3, 1.0, 0.2);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(none_hot.next(random), 4U);
    EXPECT_LT(none_cold.next(random), 4U);
  }
}

TEST(Exponential, NinetyFivePercentAreWithinTheRange) {
  constexpr std::uint64_t kEnd = 1'000'000;
  Random random(9);
  const Exponential exponential(95, 1000);
  std::uint64_t within = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i)
    within += exponential.next(random, kEnd) >= kEnd - 1000 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(within) / kDraws, 0.95, 0.003);
}

// The chances of YCSB's loop, which draws again what is farther than there are records.
TEST(Exponential, FewRecordsHaveTheChancesOfThoseDrawnAgain) {
  constexpr std::uint64_t kEnd = 50;
  Random random(10);
  const Exponential exponential(95, 0.8571428571 * kEnd);
  const double gamma = -std::log(1 - 0.95) / (0.8571428571 * kEnd);
  std::vector<double> chances;
  for (std::uint64_t i = 0; i < kEnd; ++i) {  // record i is at the distance kEnd - 1 - i
    const auto distance = static_cast<double>(kEnd - 1 - i);
    chances.push_back((std::exp(-gamma * distance) - std::exp(-gamma * (distance + 1))) /
                      (1 - std::exp(-gamma * kEnd)));
  }
  EXPECT_NEAR(std::accumulate(chances.begin(), chances.end(), 0.0), 1, 1e-9);
  EXPECT_LT(chi_square(histogram(kEnd, [&] { return exponential.next(random, kEnd); }), chances),
            bound(kEnd));
}

// A range of far more than there are records is even, and drawn as fast as another: YCSB's loop
// goes on until one of 10^17 draws is near enough.
TEST(Exponential, ItsLimitsAreOrdinaryDraws) {
  Random random(11);
  const Exponential even(1e-6, 1e9);
  EXPECT_LT(chi_square(histogram(10, [&] { return even.next(random, 10); }),
                       std::vector<double>(10, 0.1)),
            bound(10));
  for (const Exponential& newest :
       {Exponential(100, 1000), Exponential(95, 0), Exponential(100, 0)}) {
    for (const double u : {0.0, 0.5, 1 - 0x1p-53})
      EXPECT_EQ(newest.at(u, 10), 9U);
  }
  for (const Exponential& one : {even, Exponential(95, 8.57), Exponential(99.9, 1e9)}) {
    for (const std::uint64_t end : {std::uint64_t{1}, std::uint64_t{10}, std::uint64_t{1} << 49}) {
      EXPECT_EQ(one.at(0, end), end - 1);
      EXPECT_LT(one.at(1 - 0x1p-53, end), end);
    }
  }
}

TEST(Sequential, GoesRound) {
  Sequential sequential(5, 7);
  std::vector<std::uint64_t> drawn;
  for (int i = 0; i < 7; ++i)
    drawn.push_back(sequential.next());
  EXPECT_EQ(drawn, (std::vector<std::uint64_t>{5, 6, 7, 5, 6, 7, 5}));
}

// ---------------------------------------------------------------------- acknowledged insertions

TEST(AcknowledgedCounter, WaitsForTheGap) {
  AcknowledgedCounter counter(10);
  EXPECT_EQ(counter.next(), 10U);
  EXPECT_EQ(counter.next(), 11U);
  EXPECT_EQ(counter.next(), 12U);
  counter.acknowledge(12);
  EXPECT_EQ(counter.end(), 10U);
  counter.acknowledge(10);
  EXPECT_EQ(counter.end(), 11U);
  counter.acknowledge(11);
  EXPECT_EQ(counter.end(), 13U);
}

// Checks from another thread that the records which readers may choose have been acknowledged.
class Witness {
 public:
  explicit Witness(std::size_t numbers) : inserted_(numbers) {}
  void insert(std::uint64_t number) { inserted_[number].store(true, std::memory_order_relaxed); }
  bool holds(std::uint64_t end) const {
    return std::all_of(inserted_.begin(), inserted_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const auto& one) { return one.load(std::memory_order_relaxed); });
  }

 private:
  std::vector<std::atomic<bool>> inserted_;
};

TEST(AcknowledgedCounter, NeverPassesANumberThatIsNotAcknowledged) {
  constexpr std::uint64_t kEach = 2000;
  constexpr std::uint64_t kThreads = 3;
  AcknowledgedCounter counter(0);
  Witness witness(kEach * kThreads);
  std::vector<std::thread> inserters;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    inserters.emplace_back([&, i] {
      Random random(i);
      std::vector<std::uint64_t> open;  // acknowledged out of order
      for (std::uint64_t done = 0; done < kEach;) {
        if (done + open.size() < kEach) open.push_back(counter.next());
        if (open.size() < 8 && done + open.size() < kEach) continue;
        std::swap(open[random.below(open.size())], open.back());
        witness.insert(open.back());
        counter.acknowledge(open.back());
        open.pop_back();
        ++done;
      }
    });
  }
  bool held = true;
  while (held && counter.end() < kEach * kThreads)
    held = witness.holds(counter.end());
  for (std::thread& thread : inserters)
    thread.join();
  EXPECT_TRUE(held);
  EXPECT_TRUE(witness.holds(kEach * kThreads));
}

TEST(AcknowledgedCounter, TheWitnessSeesAGap) {
  Witness witness(3);
  witness.insert(0);
  witness.insert(2);
  EXPECT_TRUE(witness.holds(1));
  EXPECT_FALSE(witness.holds(3));  // what a counter that takes the highest would let readers have
}

}  // namespace
}  // namespace rkv::kvbench
