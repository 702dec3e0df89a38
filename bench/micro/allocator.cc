// The cost of allocating and releasing a block of the data extents, without the store around it.
#include <benchmark/benchmark.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bench/micro/plain_memory.h"
#include "common/clock.h"
#include "common/random.h"
#include "server/memory/memory.h"
#include "server/memory/record_allocator.h"

namespace rkv::server {
namespace {

enum Mix : std::int64_t { kRecordsOf140Bytes, kUpTo512Bytes, kUpTo2KiB, kUpTo32KiB };

std::uint64_t units_of(std::int64_t mix, Random& random) {
  switch (mix) {
    case kRecordsOf140Bytes:
      return 5;
    case kUpTo512Bytes:
      return 2 + random.below(15);
    case kUpTo2KiB:
      return 2 + random.below(63);
    default:
      return (std::uint64_t{2} << random.below(9)) + random.below(512);
  }
}

struct Arena {
  Arena() {
    const MemoryOptions options{.memory_bytes = std::size_t{512} << 20, .epoch = 1, .hash_seed = 2};
    memory = std::move(StoreMemory::create(options, bench::PlainMemory::make).value());
    while (memory->next_extent_bytes(ExtentEntry::kData) != 0)
      (void)memory->add_extent(ExtentEntry::kData);
    records.emplace(*memory, clock, kNanosPerMs / 100);
  }
  SteadyClock clock;
  std::unique_ptr<StoreMemory> memory;
  std::optional<RecordAllocator> records;
};
std::unique_ptr<Arena> arena;  // shared by the threads of one benchmark

struct Blocks {
  struct Block {
    Location at;
    std::uint64_t units;
  };
  std::vector<Block> all;
  std::uint64_t units = 0;
};

// Allocates blocks until this part of the memory is full; the threads share the work.
void fill(const benchmark::State& state, Random& random, Blocks& blocks) {
  const std::uint64_t capacity = arena->records->usage().capacity_bytes / kUnitBytes;
  const std::uint64_t share =
      capacity * static_cast<std::uint64_t>(state.range(1)) / 100 / state.threads();
  while (blocks.units < share) {
    const std::uint64_t units = units_of(state.range(0), random);
    const auto block = arena->records->allocate(units);
    if (!block) break;
    blocks.all.push_back({*block, units});
    blocks.units += units;
  }
}

// A PUT that moves its record: allocates a block and releases a random old block.
void allocator_replace(benchmark::State& state) {
  Random random(static_cast<std::uint64_t>(state.thread_index()) + 1);
  Blocks blocks;
  fill(state, random, blocks);
  for (int warm = 0; warm < 2; ++warm) {
    for (std::size_t i = 0; i < blocks.all.size(); ++i) {
      Blocks::Block& victim = blocks.all[random.below(blocks.all.size())];
      arena->records->release(victim.at, victim.units);
      while (true) {
        const std::uint64_t units = units_of(state.range(0), random);
        if (const auto block = arena->records->allocate(units)) {
          victim = {*block, units};
          break;
        }
      }
    }
  }
  for ([[maybe_unused]] auto _ : state) {
    Blocks::Block& victim = blocks.all[random.below(blocks.all.size())];
    const std::uint64_t units = units_of(state.range(0), random);
    const auto block = arena->records->allocate(units);
    if (!block) continue;
    arena->records->release(victim.at, victim.units);
    victim = {*block, units};
  }
}

// PUTs of new keys into an empty store.
void allocator_insert(benchmark::State& state) {
  Random random(static_cast<std::uint64_t>(state.thread_index()) + 1);
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(arena->records->allocate(units_of(state.range(0), random)));
}

void set_up(const benchmark::State&) {
  arena = std::make_unique<Arena>();
}
void tear_down(const benchmark::State&) {
  arena.reset();
}

BENCHMARK(allocator_insert)
    ->Setup(set_up)
    ->Teardown(tear_down)
    ->ArgNames({"mix"})
    ->Arg(kRecordsOf140Bytes)
    ->Arg(kUpTo512Bytes)
    ->Iterations(600'000)
    ->Threads(1)
    ->Threads(2)
    ->UseRealTime();
BENCHMARK(allocator_replace)
    ->Setup(set_up)
    ->Teardown(tear_down)
    ->ArgNames({"mix", "percent_full"})
    ->ArgsProduct({{kRecordsOf140Bytes, kUpTo512Bytes, kUpTo2KiB, kUpTo32KiB}, {50, 85}})
    ->Iterations(1'000'000)
    ->Threads(1)
    ->Threads(2)
    ->UseRealTime();

}  // namespace
}  // namespace rkv::server
