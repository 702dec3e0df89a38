// A client's caches of where records are, in a client's default size.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "client/get/group_cache.h"
#include "client/get/slot_cache.h"
#include "common/random.h"
#include "rkv/options.h"

namespace rkv::bench {
namespace {

using client::GroupCache;
using client::SlotCache;

// As StorageEngine divides the memory.
std::size_t slot_bytes() {
  return ClientOptions{}.cache_bytes / 4;
}
std::size_t group_bytes() {
  return ClientOptions{}.cache_bytes - slot_bytes();
}

// Arguments: how many entries are held, and looked up in random order; whether the held entries are
// looked up. Few entries stay in the processor's own caches, many do not.
constexpr std::int64_t kFew = 1 << 9;
constexpr std::int64_t kMany = 3 << 15;
void held_and_asked(benchmark::internal::Benchmark* one) {
  one->ArgNames({"held", "hit"})->ArgsProduct({{kFew, kMany}, {1, 0}});
}

// Returns `count` numbers from `first` on, shuffled.
std::vector<std::uint32_t> shuffled(std::uint32_t first, std::int64_t count) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(count));
  std::ranges::generate(numbers, [&] { return first++; });
  std::ranges::shuffle(numbers, Random(3));
  return numbers;
}
std::vector<std::uint32_t> asked_for(const benchmark::State& state) {
  const auto first = static_cast<std::uint32_t>(state.range(1) != 0 ? 0 : state.range(0));
  return shuffled(first, state.range(0));
}

// Shows the share of `wanted` that `finds` returns true for. Looks each up once, beside the timed
// lookups: their number is the benchmark's choice, and a share of ten says nothing.
void count_hits(benchmark::State& state, const std::vector<std::uint32_t>& wanted, auto finds) {
  const auto hits = std::ranges::count_if(wanted, finds);
  state.counters["hits"] = static_cast<double>(hits) / static_cast<double>(wanted.size());
}

// Reads the group's header, as a GET does: a hit that touches nothing would cost less.
void group_cache_find(benchmark::State& state) {
  GroupCache cache(group_bytes());
  for (const std::uint32_t number : shuffled(0, state.range(0)))
    cache.put({.extent = 1, .number = number}, Group{.header = number});
  const auto wanted = asked_for(state);
  std::size_t at = 0;
  for ([[maybe_unused]] auto _ : state) {
    const Group* group = cache.find({.extent = 1, .number = wanted[at]});
    std::uint64_t header = group != nullptr ? group->header : 0;
    benchmark::DoNotOptimize(header);
    at = at + 1 == wanted.size() ? 0 : at + 1;
  }
  count_hits(state, wanted, [&](std::uint32_t number) {
    return cache.find({.extent = 1, .number = number}) != nullptr;
  });
}

void slot_cache_find(benchmark::State& state) {
  SlotCache cache(slot_bytes());
  for (const std::uint32_t number : shuffled(0, state.range(0)))
    cache.put(KeyHash(mix64(number)), Slot{number + 1U});
  const auto wanted = asked_for(state);
  std::size_t at = 0;
  for ([[maybe_unused]] auto _ : state) {
    Slot slot = cache.find(KeyHash(mix64(wanted[at])));
    benchmark::DoNotOptimize(slot);
    at = at + 1 == wanted.size() ? 0 : at + 1;
  }
  count_hits(state, wanted,
             [&](std::uint32_t number) { return !cache.find(KeyHash(mix64(number))).empty(); });
}

BENCHMARK(slot_cache_find)->Apply(held_and_asked);
BENCHMARK(group_cache_find)->Apply(held_and_asked);

}  // namespace
}  // namespace rkv::bench
