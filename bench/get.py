#!/usr/bin/env python3
"""`./run bench get`: GET by one-sided READs against what lies under it, interleaved in one run: over
verbs against raw verbs of the same bytes on the same device, over shm (get_shm.py) against copies
of the same bytes. Prints each figure's median and spread over the repetitions, its ratio taken pair
by pair, and the aim; `--json FILE` writes them."""

import argparse
import os
import subprocess
import sys

import get_shm
from common import Failed, bench_get, kvserver, print_figures, write_json
from perftest import perftest, rdma_environment


def read_lat_us(options, size):
    # bytes, iterations, t_min, t_max, t_typical (median), t_avg, t_stdev, 99 %, 99.9 %
    columns = perftest("ib_read_lat", options.address, 18515, size, ["-n", str(options.gets)])
    return {"p50_us": columns[4], "p99_us": columns[7]}


def read_rate(options, size):
    # bytes, iterations, BW peak, BW average, message rate in millions
    columns = perftest("ib_read_bw", options.address, 18516, size,
                       ["-n", str(options.gets), "-t", str(options.depth), "-o", str(options.depth)])
    return {"per_s": columns[4] * 1e6}


def store(options, phase, gets=None):
    return bench_get(options, phase, transport="verbs", gets=gets or options.gets,
                     keys=options.keys, value_bytes=options.value_bytes, depth=options.depth)


FIGURES = [
    # name, aim, higher is better
    ("warm GET p50 / ib_read_lat", 1.2, False),
    ("cold GET p50 / ib_read_lat", 2.2, False),
    ("READs per warm GET", 1.02, False),
    ("READs per cold GET", 2.05, False),
    ("warm GETs/s / ib_read_bw messages/s", 0.95, True),
    ("server user CPU per GET (ns)", 50, False),
]


def measure(options):
    rows = {name: [] for name, _, _ in FIGURES}
    absolute = []
    store(options, "load")
    for repetition in range(options.repetitions):
        warm = store(options, "warm")
        raw = read_lat_us(options, warm["record_read_bytes"])
        cold = store(options, "cold")
        rate = store(options, "pipelined")
        raw_rate = read_rate(options, warm["record_read_bytes"])
        rows["warm GET p50 / ib_read_lat"].append(warm["p50_us"] / raw["p50_us"])
        rows["cold GET p50 / ib_read_lat"].append(cold["p50_us"] / raw["p50_us"])
        rows["READs per warm GET"].append(warm["reads_per_get"])
        rows["READs per cold GET"].append(cold["reads_per_get"])
        rows["warm GETs/s / ib_read_bw messages/s"].append(rate["gets_per_s"] / raw_rate["per_s"])
        absolute.append({"warm": warm, "cold": cold, "pipelined": rate, "ib_read_lat": raw,
                         "ib_read_bw": raw_rate})
        print(f"  repetition {repetition + 1} of {options.repetitions}: warm {warm['p50_us']:.1f} us,"
              f" cold {cold['p50_us']:.1f} us, ib_read_lat {raw['p50_us']:.1f} us;"
              f" {rate['gets_per_s']:.0f} GETs/s, ib_read_bw {raw_rate['per_s']:.0f}/s",
              file=sys.stderr, flush=True)
    # The kernel counts processor time in ticks: only many GETs say something.
    print(f"  {options.cpu_gets} GETs for the server's processor time", file=sys.stderr, flush=True)
    many = store(options, "pipelined", options.cpu_gets)
    rows["server user CPU per GET (ns)"].append(many["server_user_cpu_ns_per_get"])
    return rows, absolute


def environment(options):
    return {**rdma_environment(), "poll": options.poll, "depth": options.depth,
            "value_bytes": options.value_bytes, "keys": options.keys, "gets": options.gets,
            "command": " ".join(sys.argv)}


def report(options, rows, absolute):
    about = environment(options)
    print(f"\n{about['note'] or 'hardware'}; {about['device']}, MTU {about['active_mtu']}, Linux"
          f" {about['kernel']}; values of {options.value_bytes} bytes, {options.keys} keys, depth"
          f" {options.depth}, client polls {options.poll}")
    write_json(options.json, about, print_figures(FIGURES, rows), absolute)


def main():
    parser = argparse.ArgumentParser(prog="./run bench get", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--transport", default="verbs", choices=["verbs", "shm"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--gets", type=int, default=5000, help="GETs (and READs) per measurement")
    parser.add_argument("--cpu-gets", type=int, default=1_000_000,
                        help="GETs over which the server's processor time is taken")
    parser.add_argument("--keys", type=int, default=10000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--depth", type=int, default=32, help="GETs in flight, pipelined")
    parser.add_argument("--poll", default="busy", choices=["adaptive", "busy", "event"],
                        help="how bench_get waits; perftest always spins")
    parser.add_argument("--bin", default="build/release/bin", help="where the programs are")
    parser.add_argument("--address", help="HOST:PORT on the RDMA device to use",
                        default=os.environ.get("RKV_RDMA_ADDRESS", "127.0.0.1") + ":7471")
    options = parser.parse_args()

    try:
        if options.transport == "shm":
            get_shm.run(options)
        else:
            with kvserver(options, "verbs"):
                rows, absolute = measure(options)
                report(options, rows, absolute)
    except (Failed, OSError, subprocess.SubprocessError) as problem:
        print(f"bench get: {problem}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
