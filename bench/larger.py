#!/usr/bin/env python3
"""`./run bench larger`: data four times the server's memory under YCSB's workload B, against LRU on
the same operations; and a server that is killed and started again."""

import sys
import tempfile

from common import kvserver, program, progress, run_benchmark

FLAGS = {"--memory-mib": (64, "of the server"),
         "--keys": (220_000, "records of 1,000 bytes, for 64 MiB"),
         "--operations": (500_000, "in each measurement, after as many to warm up")}


def measure(options, figures):
    with tempfile.TemporaryDirectory(prefix="rkv-bench-") as data:
        memory, extra = f"{options.memory_mib}MiB", ["--data-dir", data]
        with kvserver(options, memory, extra):
            filled = phase(options, figures, "fill")
            progress("filled")
            figures.add("keys / records in memory, filled", options.keys / filled["records"])
            for repetition in range(options.repetitions):
                one = phase(options, figures, "mix")
                figures.add("GETs by READ alone (%)", 100 * one["hit_rate"])
                figures.add("hits of LRU, same operations (%)", 100 * one["lru_hit_rate"])
                figures.add("points below LRU", 100 * (one["lru_hit_rate"] - one["hit_rate"]), 5)
                figures.add("operations/s", one["operations_per_s"])
                progress(f"mix {repetition + 1} of {options.repetitions}")
        for _ in range(options.repetitions):
            with kvserver(options, memory, extra) as server:
                one = phase(options, figures, "restart")
                figures.add("ready, then first GET answered (s)", one["first_get_seconds"], 2)
                figures.add("loaded, of all it takes (s)", one["loaded_seconds"])
                server.kill()
                server.wait()


def phase(options, figures, name):
    one = program(options, "bench_larger", name, keys=options.keys, operations=options.operations)
    figures.runs.append({name: one})
    return one


def describe(options):
    return (f"{options.keys} keys of 1,000 bytes, {options.memory_mib} MiB, {options.operations}"
            " operations a measurement")


if __name__ == "__main__":
    sys.exit(run_benchmark("larger", measure, describe, FLAGS, repetitions=3))
