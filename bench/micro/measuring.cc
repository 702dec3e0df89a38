// The cost of measuring: counting a latency, and drawing the next operation.
#include <benchmark/benchmark.h>

#include <vector>

#include "bench/kvbench/generators.h"
#include "bench/kvbench/hdr_histogram.h"
#include "common/clock.h"
#include "common/histogram.h"
#include "common/random.h"

namespace rkv::bench {
namespace {

// Realistic latencies: most are a few microseconds, some a thousand times as long.
std::vector<std::uint64_t> latencies() {
  Random random(11);
  std::vector<std::uint64_t> values(4096);
  for (std::uint64_t& value : values)
    value = (1000 + (random() & 0xFFFU)) << (random.below(100) == 0 ? 10 : 0);
  return values;
}

template <class Counter>
void record_latency(benchmark::State& state) {
  Counter counter;
  const auto values = latencies();
  std::size_t at = 0;
  for ([[maybe_unused]] auto _ : state) {
    counter.record(values[at++ % values.size()]);
    benchmark::ClobberMemory();
  }
}

void look_at_clock(benchmark::State& state) {
  const SteadyClock clock;
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(clock.now());
}

void draw_zipfian(benchmark::State& state) {
  const kvbench::ScrambledZipfian keys(0, 999'999);
  Random random(12);
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(keys.next(random));
}

BENCHMARK(look_at_clock);
BENCHMARK_TEMPLATE(record_latency, Histogram)->Name("histogram_record");
BENCHMARK_TEMPLATE(record_latency, kvbench::LatencyRecorder)->Name("hdr_histogram_record");
BENCHMARK(draw_zipfian);

}  // namespace
}  // namespace rkv::bench
