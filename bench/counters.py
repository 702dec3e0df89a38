#!/usr/bin/env python3
"""`./run bench counters`: what changing a counter costs, by a request and by an RDMA atomic; over
verbs against raw atomics of perftest, taken in turn on the same device. And what many additions
cost that a server without cells carries out."""

import sys

from common import kvserver, program, progress, run_benchmark
from perftest import perftest

ATOMIC = ["-A", "FETCH_AND_ADD"]
FLAGS = {"--additions": (5000, "in each measurement"),
         "--depth": (32, "atomics in flight, pipelined")}


def phase(options, name):
    return program(options, "bench_counters", name, depth=options.depth,
                   additions=options.additions)


def raw(options):
    # bytes, iterations, t_min, t_max, t_typical (median), ...; bytes, iterations, BW peak, BW
    # average, message rate in millions
    count = ["-n", str(options.additions)]
    depth = ["-t", str(options.depth), "-o", str(options.depth)]
    return {"p50_us": perftest("ib_atomic_lat", options.address, 18517, 8, ATOMIC + count)[4],
            "per_s": perftest("ib_atomic_bw", options.address, 18518, 8,
                              ATOMIC + count + depth)[4] * 1e6}


def measure(options, figures):
    with kvserver(options, "64MiB"):
        for repetition in range(options.repetitions):
            repeat(options, figures)
            progress(f"repetition {repetition + 1} of {options.repetitions}")
    with kvserver(options, "64MiB", ("--counter-cells", "0")):
        for repetition in range(options.repetitions):
            repeat_without_cells(options, figures)
            progress(f"repetition {repetition + 1} of {options.repetitions} without cells")


def repeat(options, figures):
    request, atomic = phase(options, "request"), phase(options, "atomic")
    rate = phase(options, "pipelined")
    figures.runs.append({"request": request, "atomic": atomic, "pipelined": rate})
    figures.add("incr by a request, p50 (us)", request["p50_us"])
    figures.add("incr by an atomic, p50 (us)", atomic["p50_us"])
    figures.add("request p50 / atomic p50", request["p50_us"] / atomic["p50_us"])
    figures.add("atomics/s, pipelined", rate["per_s"])
    if options.transport == "verbs":
        verbs = raw(options)
        figures.runs[-1]["perftest"] = verbs
        figures.add("atomic p50 / ib_atomic_lat", atomic["p50_us"] / verbs["p50_us"], 1.2)
        figures.add("atomics/s / ib_atomic_bw messages/s", rate["per_s"] / verbs["per_s"], 0.95,
                    True)


def repeat_without_cells(options, figures):
    packed = phase(options, "packed")
    figures.runs.append({"packed": packed})
    figures.add("additions/s without cells, one by one", packed["one_by_one_per_s"])
    figures.add("additions/s without cells, in packs", packed["per_s"])
    figures.add("in packs / one by one", packed["per_s"] / packed["one_by_one_per_s"])
    figures.add("additions a request, in packs", options.additions / packed["requests"])


def describe(options):
    return f"{options.additions} additions a measurement, depth {options.depth}"


if __name__ == "__main__":
    sys.exit(run_benchmark("counters", measure, describe, FLAGS, transport="verbs", poll="busy"))
