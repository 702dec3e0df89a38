#!/usr/bin/env python3
"""`./run bench growth`: a store that fills and grows - READs a GET, latency while it doubles, GETs
beside PUTs, latency against the number of keys, index bytes a key."""

import argparse
import os
import platform
import subprocess
import sys

from common import Failed, Figures, bench_get, kvserver, program, write_json


def phase(options, name, keys, gets):
    return program(options, "bench_growth", server=options.address, phase=name,
                   transport=options.transport, keys=keys, gets=gets)


def measure_loads(options, figures):
    # Half a million slots from the start: each load is met before anything splits.
    with kvserver(options, options.transport, "512MiB"):
        for at in phase(options, "loads", 10_000, options.gets):
            figures.runs.append(at)
            load = f"load {at['load']:.2f}"
            figures.add(f"READs a hit, warm, {load}", at["warm"]["reads"], 1.05)
            figures.add(f"READs a hit, cold, {load}", at["cold"]["reads"], 2.05)
            figures.add(f"READs a miss, {load}", at["miss"]["reads"], 1.3)
            figures.add(f"asked the server (%), cold, {load}", 100 * at["cold"]["asked"])


def measure_doubling(options, figures):
    for _ in range(options.repetitions):
        with kvserver(options, options.transport, "128MiB"):
            one = phase(options, "doubling", options.keys, options.gets)
        figures.runs.append(one)
        steady, grown = one["overwriting"], one["doubling"]
        figures.add("GET p99 doubling / p99 overwriting", grown["p99_us"] / steady["p99_us"], 2)
        figures.add("GET p99 doubling / p99 nobody writes", grown["p99_us"] / one["quiet"]["p99_us"])
        figures.add("failed GETs while doubling", grown["failed"], 0)
        figures.add("splits while doubling", one["splits"])


def measure_mixed(options, figures):
    with kvserver(options, options.transport, "512MiB"):
        for _ in range(options.repetitions):
            one = phase(options, "mixed", min(options.keys, 50_000), options.gets)
            figures.runs.append(one)
            figures.add("GETs/s with 10 % PUTs / alone",
                        one["mixed_gets_per_s"] / one["alone_gets_per_s"], 0.9, True)


def measure_sizes(options, figures):
    sizes = [10_000, 100_000, 1_000_000, 10_000_000]
    for keys in [size for size in sizes if size <= options.most_keys]:
        settings = {"transport": options.transport, "gets": options.gets, "keys": keys,
                    "value_bytes": 100, "poll": "adaptive"}
        with kvserver(options, options.transport, f"{max(64, keys * 256 >> 20)}MiB"):
            bench_get(options, "load", **settings)
            for _ in range(options.repetitions):
                cold = bench_get(options, "cold", **settings)
                figures.runs.append({"keys": keys, "cold": cold})
                figures.add(f"cold GET p50 (us), {keys} keys", cold["p50_us"])
                figures.add(f"READs a cold GET, {keys} keys", cold["reads_per_get"], 2.05)


def main():
    parser = argparse.ArgumentParser(prog="./run bench growth", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--transport", default="shm", choices=["verbs", "shm"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--keys", type=int, default=100_000, help="before the doubling")
    parser.add_argument("--gets", type=int, default=50_000)
    parser.add_argument("--most-keys", type=int, default=1_000_000,
                        help="of the sizes 10^4 to 10^7, the largest to measure")
    parser.add_argument("--bin", default="build/release/bin", help="where the programs are")
    parser.add_argument("--address", help="HOST:PORT of the server to start",
                        default=os.environ.get("RKV_RDMA_ADDRESS", "127.0.0.1") + ":7471")
    options = parser.parse_args()
    options.poll = "adaptive"
    figures = Figures()
    try:
        for step in (measure_loads, measure_doubling, measure_mixed, measure_sizes):
            print(f"  {step.__name__}", file=sys.stderr, flush=True)
            step(options, figures)
    except (Failed, OSError, subprocess.SubprocessError) as problem:
        print(f"bench growth: {problem}", file=sys.stderr)
        return 4
    note = "SoftRoCE or hardware" if options.transport == "verbs" else "shared memory"
    print(f"\n{note}, Linux {platform.release()}; values of 100 bytes, {options.keys} keys before the"
          f" doubling, {options.gets} GETs a measurement")
    environment = {"transport": options.transport, "kernel": platform.release(),
                   "cores": os.cpu_count(), "command": " ".join(sys.argv)}
    write_json(options.json, environment, figures.print(), figures.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
