#!/usr/bin/env python3
"""`./run bench get`: GET by one-sided READs against what lies under it, interleaved in one run: over
verbs against raw verbs of the same bytes on the same device, over shm (get_shm.py) against copies
of the same bytes. Prints each figure's median and spread over the repetitions, its ratio taken pair
by pair, and the aim; `--json FILE` writes them."""

import sys

import get_shm
from common import kvserver, program, progress, run_benchmark
from perftest import perftest

FLAGS = {"--gets": (5000, "GETs (and READs) in each measurement"),
         "--cpu-gets": (1_000_000, "GETs over which the server's processor time is taken"),
         "--keys": (10_000, "in the store, over verbs"),
         "--value-bytes": (100, "size of a value, over verbs"),
         "--records-mib": (192, "of records, over shm: far beyond a processor's private caches"),
         "--depth": (32, "GETs in flight, pipelined")}


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
    return program(options, "bench_get", phase, gets=gets or options.gets, keys=options.keys,
                   value_bytes=options.value_bytes, depth=options.depth)


def repeat(options, figures):
    warm = store(options, "warm")
    raw = read_lat_us(options, warm["record_read_bytes"])
    cold = store(options, "cold")
    rate = store(options, "pipelined")
    cold_rate = store(options, "pipelined_cold")
    raw_rate = read_rate(options, warm["record_read_bytes"])
    figures.runs.append({"warm": warm, "cold": cold, "pipelined": rate,
                         "pipelined_cold": cold_rate, "ib_read_lat": raw, "ib_read_bw": raw_rate})
    figures.add("warm GET p50 / ib_read_lat", warm["p50_us"] / raw["p50_us"], 1.2)
    figures.add("warm GET p99 / ib_read_lat p99", warm["p99_us"] / raw["p99_us"], 1.3)
    figures.add("cold GET p50 / ib_read_lat", cold["p50_us"] / raw["p50_us"], 2.2)
    figures.add("READs per warm GET", warm["reads_per_get"], 1.02)
    figures.add("READs per cold GET", cold["reads_per_get"], 2.05)
    figures.add("warm GETs/s / ib_read_bw messages/s", rate["gets_per_s"] / raw_rate["per_s"], 0.95,
                True)
    figures.add("cold GETs/s / ib_read_bw messages/s", cold_rate["gets_per_s"] / raw_rate["per_s"],
                0.48, True)
    progress(f"warm {warm['p50_us']:.1f} us, cold {cold['p50_us']:.1f} us, ib_read_lat"
             f" {raw['p50_us']:.1f} us; {rate['gets_per_s']:.0f} GETs/s, ib_read_bw"
             f" {raw_rate['per_s']:.0f}/s")


def measure(options, figures):
    if options.transport == "shm":
        get_shm.measure(options, figures)
    else:
        measure_gets(options, figures)
    measure_server_cpu(options, figures, 1)


def measure_gets(options, figures):
    with kvserver(options):
        store(options, "load")
        for _ in range(options.repetitions):
            repeat(options, figures)


def measure_server_cpu(options, figures, times):
    """The kernel counts processor time in ticks: only many GETs say something."""
    with kvserver(options):
        store(options, "load")
        for _ in range(times):
            progress(f"{options.cpu_gets} GETs for the server's processor time")
            many = store(options, "pipelined", options.cpu_gets)
            figures.runs.append({"server_cpu": many})
            figures.add("server user CPU per GET (ns)", many["server_user_cpu_ns_per_get"], 50)


def describe(options):
    if options.transport == "shm":
        return get_shm.describe(options)
    return (f"values of {options.value_bytes} bytes, {options.keys} keys, {options.gets} GETs a"
            f" measurement, depth {options.depth}")


if __name__ == "__main__":
    sys.exit(run_benchmark("get", measure, describe, FLAGS, transport="verbs", poll="busy"))
