// The allocator under a changing mix of sizes: how much of the memory can hold records.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "common/random.h"
#include "server/memory/record_allocator.h"
#include "tests/server/store/store_fixture.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

// Sizes of records in bytes: header, key and value.
using Sizes = std::function<std::uint64_t(Random&)>;

struct Block {
  Location at;
  std::uint64_t bytes;
  std::uint64_t units() const { return record_units(bytes); }
};

struct Churn {
  Churn(std::size_t memory_bytes, std::size_t data_extent_bytes)
      : memory(testing::make_plain_memory({.memory_bytes = memory_bytes,
                                           .epoch = kTestEpoch,
                                           .hash_seed = 42,
                                           .initial_segments = 16,
                                           .max_segments = 16,
                                           .data_extent_bytes = data_extent_bytes})) {
    add_all_data_extents(*memory);
    records.emplace(*memory, clock);
  }

  // Returns what is wrong with the allocator, according to the live blocks; empty: nothing.
  std::string violation() const {
    RecordAllocator::Check check(*records);
    for (const Block& block : blocks) {
      if (std::string wrong = check.claim(block.at, block.units()); !wrong.empty()) return wrong;
    }
    return check.finish();
  }
  void free_one(Random& random) {
    const std::size_t victim = random.below(blocks.size());
    live_bytes -= blocks[victim].bytes;
    records->release(blocks[victim].at, blocks[victim].units());
    blocks[victim] = blocks.back();
    blocks.pop_back();
  }
  // Fills up with these sizes, freeing a random block whenever there is no room; `rounds` times
  // the memory is written in all, and kLeastRecords records at least. Returns the part of the
  // capacity that held records, without what rounds them up to units, on average over the last
  // quarter.
  double run(const Sizes& sizes, std::uint64_t rounds, Random& random) {
    const std::uint64_t capacity = records->usage().capacity_bytes;
    double sum = 0;
    std::uint64_t samples = 0;
    std::uint64_t written = 0;
    const auto progress = [&, start = count] {
      return std::min(static_cast<double>(written) / static_cast<double>(capacity * rounds),
                      static_cast<double>(count - start) / kLeastRecords);
    };
    for (; progress() < 1; ++count) {
      Block block{.at = {}, .bytes = sizes(random)};
      clock.advance(kNanosPerMs);
      auto at = records->allocate(block.units());
      for (; !at; at = records->allocate(block.units()))
        free_one(random);
      block.at = *at;
      blocks.push_back(block);
      live_bytes += block.bytes;
      written += block.bytes;
      if (progress() > 0.75) {
        sum += static_cast<double>(live_bytes) / static_cast<double>(capacity);
        ++samples;
      }
    }
    return sum / static_cast<double>(samples);
  }

  static constexpr double kLeastRecords = 50'000;
  ManualClock clock;
  std::unique_ptr<StoreMemory> memory;
  std::optional<RecordAllocator> records;
  std::vector<Block> blocks;
  std::uint64_t live_bytes = 0;
  std::uint64_t count = 0;  // of records written
};

Sizes uniform(std::uint64_t least, std::uint64_t most) {
  return [=](Random& random) { return least + random.below(most - least + 1); };
}
// From 32 bytes to the longest that is not of a large value, each doubling equally likely.
std::uint64_t any_size(Random& random) {
  const std::uint64_t top = std::uint64_t{kUnitBytes} << random.below(13);
  return std::min(top + random.below(top), std::uint64_t{kMaxInlineRecordBytes});
}

struct Phase {
  const char* name;
  Sizes sizes;
  double least;  // of the data extents that holds records
};

std::vector<Phase> phases() {
  return {
      {"64 bytes", uniform(64, 64), 0.99},
      {"1 to 2 KiB", uniform(1024, 2048), 0.92},
      {"64 to 512 bytes", uniform(64, 512), 0.93},
      {"32 to 128 KiB", uniform(32 << 10, 128 << 10), 0.89},
      {"any size", any_size, 0.85},
      {"values of 100 bytes", uniform(24 + 8 + 100, 24 + 39 + 100), 0.89},
      {"8 to 16 KiB", uniform(8 << 10, 16 << 10), 0.92},
      {"2 to 4 KiB", uniform(2048, 4096), 0.93},
      {"16 to 32 KiB", uniform(16 << 10, 32 << 10), 0.91},
      {"4 to 8 KiB", uniform(4096, 8192), 0.93},
      {"any size again", any_size, 0.85},
  };
}

struct Shape {
  std::size_t memory_bytes;
  std::size_t data_extent_bytes;
  std::uint64_t seeds;
  std::uint64_t rounds;
};
class ChurnOfShape : public ::testing::TestWithParam<Shape> {};

TEST_P(ChurnOfShape, UtilisationUnderAChangingMix) {
  if (kSanitized) GTEST_SKIP() << "a figure, for the plain build";
  const std::vector<Phase> all = phases();
  std::vector<std::vector<double>> reached(all.size());
  for (std::uint64_t seed = 1; seed <= GetParam().seeds; ++seed) {
    Churn churn(GetParam().memory_bytes, GetParam().data_extent_bytes);
    Random random(seed);
    std::size_t number = 0;
    for (const Phase& phase : all) {
      reached[number++].push_back(churn.run(phase.sizes, GetParam().rounds, random));
      ASSERT_EQ(churn.violation(), "") << phase.name;
    }
    for (const Block& block : churn.blocks)
      churn.records->release(block.at, block.units());
    EXPECT_EQ(churn.records->usage().used_bytes, 0U);
  }
  for (std::size_t number = 0; number < reached.size(); ++number) {
    const Phase& phase = all[number];
    const auto [least, most] = std::ranges::minmax(reached[number]);
    fmt::print("{:20} {:5.1f} to {:5.1f} % of the data extents hold records\n", phase.name,
               100 * least, 100 * most);
    EXPECT_GE(least, phase.least) << phase.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, ChurnOfShape,
                         ::testing::Values(Shape{.memory_bytes = kMinMemoryBytes,
                                                 .data_extent_bytes = 15 << 20,
                                                 .seeds = 3,
                                                 .rounds = 4},
                                           Shape{.memory_bytes = std::size_t{64} << 20,
                                                 .data_extent_bytes = 8 << 20,
                                                 .seeds = 1,
                                                 .rounds = 6}));

TEST(AllocatorChurn, BlocksNeverOverlap) {
  Churn churn(kMinMemoryBytes, 15 << 20);
  Random random(2);
  std::vector<std::uint32_t> owner(churn.records->usage().capacity_bytes / kUnitBytes, 0);
  const std::uint32_t extent = first_data_extent(*churn.memory).id;
  const auto mark = [&](const Block& block, std::uint32_t from, std::uint32_t to) {
    ASSERT_EQ(block.at.extent(), extent);
    for (std::uint64_t u = 0; u < block.units(); ++u) {
      ASSERT_EQ(owner[block.at.unit() + u], from);
      owner[block.at.unit() + u] = to;
    }
  };
  std::vector<std::pair<Block, std::uint32_t>> blocks;
  for (std::uint32_t id = 1; id < (kSanitized ? 30'000U : 300'000U); ++id) {
    const std::uint64_t bytes = id % 3 == 0 ? any_size(random) : 1 + random.below(40 * kUnitBytes);
    churn.clock.advance(kNanosPerMs / 4);
    auto at = churn.records->allocate(record_units(bytes));
    while (!at || random.below(8) == 0) {
      if (blocks.empty()) break;
      const std::size_t victim = random.below(blocks.size());
      const auto [block, victim_id] = blocks[victim];
      ASSERT_NO_FATAL_FAILURE(mark(block, victim_id, 0));
      churn.records->release(block.at, block.units());
      blocks[victim] = blocks.back();
      blocks.pop_back();
      if (!at) at = churn.records->allocate(record_units(bytes));
    }
    ASSERT_TRUE(at);
    ASSERT_NO_FATAL_FAILURE(mark({*at, bytes}, 0, id));
    blocks.push_back({{*at, bytes}, id});
  }
  for (const auto& [block, id] : blocks)
    churn.blocks.push_back(block);
  EXPECT_EQ(churn.violation(), "");
}

}  // namespace
}  // namespace rkv::server
