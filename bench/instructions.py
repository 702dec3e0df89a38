#!/usr/bin/env python3
"""`./run bench instructions`: the client's instructions per operation of values of 100 bytes over
shared memory, counted by callgrind, so that the machine's load does not matter: a GET whose place is
cached and a PUT, by the call of one key, by the pipeline of many (a call of one key), and by a Cluster.
Each figure is the difference of two runs, one with 10,000 operations more. Servers place the
keys by chance, which moves the figure of a GET by some instructions."""

import os
import re
import sys
import tempfile

from common import Failed, kvserver, program, run_benchmark

MORE = 10_000
KEYS = 10_000
# What is counted: a function and all it calls.
GETS = {"get_into()": ("warm", "rkv::Operations<rkv::Client>::get_bytes*"),
        "multi_get_into() of one key": ("warm_by_pipeline", "rkv::Client::visit_all*"),
        "get_into() of a Cluster of one server": ("warm_of_cluster", "rkv::Operations<rkv::Cluster>::get_bytes*")}
PUTS = {"put()": ("put", "rkv::Operations<rkv::Client>::put_with(*PutOptions const&)"),
        "multi_put_each() of one item": ("put_by_pipeline", "rkv::Client::put_all*")}
SHARD_OF = "rkv::ShardMap::look_up*"


def counted(options, name, phase, function, flag, **settings):
    """Instructions of a function and all it calls, per operation."""
    counts = []
    for operations in (MORE // 5, MORE // 5 + MORE):
        with tempfile.TemporaryDirectory(prefix="rkv-callgrind-") as scratch:
            out = os.path.join(scratch, "out")
            prefix = ["valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={out}",
                      "--collect-atstart=no", f"--toggle-collect={function}"]
            program(options, name, phase, prefix, **{**settings, flag: operations})
            with open(out, encoding="utf-8") as text:
                totals = re.search(r"^(?:summary|totals): (\d+)", text.read(), re.MULTILINE)
        if not totals:
            raise Failed("callgrind wrote no total")
        counts.append(int(totals.group(1)))
    if counts[1] == counts[0]:
        raise Failed(f"callgrind saw no {function}: have the programs their symbols?")
    return (counts[1] - counts[0]) / MORE


def warm_get(options, call="get_into()"):
    phase, function = GETS[call]
    return counted(options, "bench_get", phase, function, "gets", keys=KEYS, value_bytes=100)


def measure_once(options, figures):
    options.poll = "adaptive"
    with kvserver(options):
        program(options, "bench_get", "load", keys=KEYS, value_bytes=100)
        for call in GETS:
            figures.add(f"GET of a cached place, {call}", warm_get(options, call))
    options.poll = "event"  # the instructions of a spin tell nothing
    with kvserver(options, extra=["--poll", "event"]):
        program(options, "bench_put", "load", keys=KEYS, value_bytes=100, depth=32)
        for call, (phase, function) in PUTS.items():
            figures.add(f"PUT, {call}", counted(options, "bench_put", phase, function, "puts", keys=KEYS,
                                                value_bytes=100))
    figures.add("the server of a key, of 3 servers",
                counted(options, "bench_get", "shard", SHARD_OF, "gets", keys=KEYS))


def measure(options, figures):
    for _ in range(options.repetitions):
        measure_once(options, figures)


def main():
    return run_benchmark("instructions", measure, lambda _: f"{KEYS} keys, values of 100 bytes", {},
                         repetitions=3)


if __name__ == "__main__":
    sys.exit(main())
