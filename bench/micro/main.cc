// bench_micro: the parts of the store by themselves, without server, device or disk. README.md has
// each one's claim.
#include <benchmark/benchmark.h>

BENCHMARK_MAIN();
