// The allocator under a changing mix of sizes: how much of the memory can hold records.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/random.h"
#include "server/records.h"
#include "tests/server/core/store_fixture.h"

namespace rkv::server {
namespace {

using Sizes = std::function<std::uint64_t(Random&)>;

struct Block {
  Location at;
  std::uint64_t units;
};

struct Churn {
  explicit Churn(std::size_t memory_bytes)
      : memory(testing::make_plain_memory({.memory_bytes = memory_bytes,
                                           .epoch = kTestEpoch,
                                           .hash_seed = 42,
                                           .initial_segments = 16,
                                           .max_segments = 16,
                                           .data_extent_bytes = 15 << 20})),
        records(*memory, clock) {}

  // Fills up with these sizes, freeing a random block whenever there is no room; `rounds` times
  // the memory is written in all. Returns the part of the capacity that held requested bytes, on
  // average over the last quarter.
  double run(const Sizes& sizes, int rounds, Random& random) {
    const std::uint64_t capacity = records.usage().capacity_bytes / kUnitBytes;
    double sum = 0;
    std::uint64_t samples = 0;
    for (std::uint64_t written = 0; written < capacity * rounds;) {
      const std::uint64_t units = sizes(random);
      clock.advance(kNanosPerMs);
      auto at = records.allocate(units);
      while (!at) {
        const std::size_t victim = random.below(blocks.size());
        live -= blocks[victim].units;
        records.release(blocks[victim].at);
        std::swap(blocks[victim], blocks.back());
        blocks.pop_back();
        at = records.allocate(units);
      }
      blocks.push_back({*at, units});
      live += units;
      written += units;
      if (written * 4 > 3 * capacity * rounds) {
        sum += static_cast<double>(live) / static_cast<double>(capacity);
        ++samples;
      }
    }
    return sum / static_cast<double>(samples);
  }

  ManualClock clock;
  std::unique_ptr<StoreMemory> memory;
  RecordAllocator records;
  std::vector<Block> blocks;
  std::uint64_t live = 0;
};

Sizes uniform(std::uint64_t least, std::uint64_t most) {
  return [=](Random& random) { return least + random.below(most - least + 1); };
}
// Each doubling equally likely.
std::uint64_t any_size(Random& random) {
  const std::uint64_t top = std::uint64_t{1} << random.below(13);
  return std::min(top + random.below(top), record_units(kMaxInlineRecordBytes));
}

TEST(AllocatorChurn, UtilisationUnderAChangingMix) {
  if (kSanitized) GTEST_SKIP() << "a figure, for the plain build";
  Churn churn(kMinMemoryBytes);
  Random random(1);
  struct Phase {
    const char* name;
    Sizes sizes;
    double least;
  };
  const std::vector<Phase> phases = {
      {"64 bytes", uniform(2, 2), 0.97},
      {"1 to 2 KiB", uniform(32, 64), 0.82},
      {"64 to 512 bytes", uniform(2, 16), 0.90},
      {"32 to 128 KiB", uniform(1024, 4096), 0.85},
      {"any size", any_size, 0.83},
      {"100 bytes", uniform(4, 4), 0.95},
  };
  for (const Phase& phase : phases) {
    const double utilisation = churn.run(phase.sizes, 8, random);
    fmt::print("{:16} {:5.1f} % of the data extents hold records\n", phase.name, 100 * utilisation);
    EXPECT_GE(utilisation, phase.least) << phase.name;
  }
  for (const Block& block : churn.blocks)
    churn.records.release(block.at);
  EXPECT_EQ(churn.records.usage().used_bytes, 0U);
}

TEST(AllocatorChurn, BlocksNeverOverlap) {
  Churn churn(kMinMemoryBytes);
  Random random(2);
  std::vector<std::uint32_t> owner(churn.records.usage().capacity_bytes / kUnitBytes, 0);
  const std::uint32_t extent = first_data_extent(*churn.memory).id;
  const auto mark = [&](const Block& block, std::uint32_t from, std::uint32_t to) {
    ASSERT_EQ(block.at.extent(), extent);
    for (std::uint64_t u = 0; u < block.units; ++u) {
      ASSERT_EQ(owner[block.at.unit() + u], from);
      owner[block.at.unit() + u] = to;
    }
  };
  std::vector<std::pair<Block, std::uint32_t>> blocks;
  for (std::uint32_t id = 1; id < (kSanitized ? 30'000U : 300'000U); ++id) {
    const std::uint64_t units = id % 3 == 0 ? any_size(random) : 1 + random.below(40);
    churn.clock.advance(kNanosPerMs / 4);
    auto at = churn.records.allocate(units);
    while (!at || random.below(8) == 0) {
      if (blocks.empty()) break;
      const std::size_t victim = random.below(blocks.size());
      const auto [block, victim_id] = blocks[victim];
      ASSERT_NO_FATAL_FAILURE(mark(block, victim_id, 0));
      churn.records.release(block.at);
      blocks[victim] = blocks.back();
      blocks.pop_back();
      if (!at) at = churn.records.allocate(units);
    }
    ASSERT_TRUE(at);
    ASSERT_NO_FATAL_FAILURE(mark({*at, units}, 0, id));
    blocks.push_back({{*at, units}, id});
  }
}

}  // namespace
}  // namespace rkv::server
