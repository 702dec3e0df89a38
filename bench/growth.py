#!/usr/bin/env python3
"""`./run bench growth`: a store that fills and grows - READs a GET, latency while it doubles, GETs
beside PUTs, latency against the number of keys."""

import sys

from common import kvserver, program, progress, run_benchmark

SHOWN_LOADS = (0.5, 0.75, 0.9)  # of those that bench_growth measures
FLAGS = {"--keys": (100_000, "before the doubling"),
         # Half a million slots from the start: each load is met before anything splits.
         "--loads-memory": ("512MiB", "of the server whose index is filled"),
         "--gets": (50_000, "in each measurement"),
         "--most-keys": (1_000_000, "of the sizes 10^4 to 10^7, the largest to measure")}


def phase(options, name, keys):
    return program(options, "bench_growth", name, keys=keys, gets=options.gets)


def measure_loads(options, figures):
    with kvserver(options, options.loads_memory):
        for at in phase(options, "loads", 10_000):
            figures.runs.append(at)
            if at["wanted"] not in SHOWN_LOADS:
                continue
            load = f"load {at['wanted']:.2f}"
            figures.add(f"READs a hit, warm, {load}", at["warm"]["reads"], 1.05)
            figures.add(f"READs a hit, cold, {load}", at["cold"]["reads"], 2.05)
            figures.add(f"READs a miss, cold, {load}", at["miss"]["reads"], 1.3)
            figures.add(f"READs a miss, warm, {load}", at["warm_miss"]["reads"], 1.3)
            figures.add(f"asked the server (%), cold, {load}", 100 * at["cold"]["asked"])


def measure_doubling(options, figures):
    for _ in range(options.repetitions):
        with kvserver(options, "128MiB"):
            one = phase(options, "doubling", options.keys)
        figures.runs.append(one)
        steady, grown = one["overwriting"], one["doubling"]
        figures.add("GET p99 doubling / p99 overwriting", grown["p99_us"] / steady["p99_us"], 2)
        figures.add("GET p99 doubling / p99 nobody writes", grown["p99_us"] / one["quiet"]["p99_us"])
        figures.add("failed GETs while doubling", grown["failed"], 0)
        figures.add("splits while doubling", one["splits"])


def measure_mixed(options, figures):
    with kvserver(options, "512MiB"):
        for _ in range(options.repetitions):
            one = phase(options, "mixed", min(options.keys, 50_000))
            figures.runs.append(one)
            figures.add("GETs/s with 10 % PUTs / alone",
                        one["mixed_gets_per_s"] / one["alone_gets_per_s"], 0.9, True)


def measure_sizes(options, figures):
    sizes = [10_000, 100_000, 1_000_000, 10_000_000]
    for keys in [size for size in sizes if size <= options.most_keys]:
        settings = {"gets": options.gets, "keys": keys}
        with kvserver(options, f"{max(64, keys * 256 >> 20)}MiB"):
            program(options, "bench_get", "load", **settings)
            for _ in range(options.repetitions):
                cold = program(options, "bench_get", "cold", **settings)
                figures.runs.append({"keys": keys, "cold": cold})
                figures.add(f"cold GET p50 (us), {keys} keys", cold["p50_us"])
                figures.add(f"READs a cold GET, {keys} keys", cold["reads_per_get"], 2.05)


def measure(options, figures):
    for step in (measure_loads, measure_doubling, measure_mixed, measure_sizes):
        progress(step.__name__)
        step(options, figures)


def describe(options):
    return (f"values of 100 bytes, {options.keys} keys before the doubling, {options.gets} GETs a"
            " measurement")


if __name__ == "__main__":
    sys.exit(run_benchmark("growth", measure, describe, FLAGS))
