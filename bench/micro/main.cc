// bench_micro: the parts of the store alone, without server, device or disk. README.md lists the
// claim of each benchmark.
#include <benchmark/benchmark.h>

BENCHMARK_MAIN();
