#!/usr/bin/env python3
"""`./run bench expiry`: PUTs of keys that do not expire, beside millions of keys whose time to live is
set again and again; and how late keys end."""

import sys

from common import kvserver, program, progress, run_benchmark

FLAGS = {"--keys": (10_000_000, "that expire"),
         "--rate": (20_000, "of them that the neighbour writes in a second"),
         "--seconds": (10, "of each measurement")}
SETTINGS = ("keys", "rate", "seconds")


def measure(options, figures):
    settings = {name: getattr(options, name) for name in SETTINGS}
    with kvserver(options, f"{max(64, options.keys * 256 >> 20)}MiB"):
        figures.runs.append({"fill": program(options, "bench_expiry", "fill", **settings)})
        progress("filled")
        for repetition in range(options.repetitions):
            one = {phase: program(options, "bench_expiry", phase, **settings)
                   for phase in ("alone", "plain", "refreshed")}
            figures.runs.append(one)
            for phase, done in one.items():
                figures.add(f"PUT p99.9 (us), {phase}", done["p999_us"])
            p999 = {phase: done["p999_us"] for phase, done in one.items()}
            figures.add("PUT p99.9, refreshed / alone", p999["refreshed"] / p999["alone"], 2)
            figures.add("PUT p99.9, refreshed / plain", p999["refreshed"] / p999["plain"], 2)
            figures.add("a key at the latest (ms), refreshed", one["refreshed"]["latest_ms"], 200)
            figures.add("keys that expire", one["refreshed"]["expiring"])
            progress(f"{repetition + 1} of {options.repetitions}")


def describe(options):
    return (f"{options.keys} keys that expire, a neighbour writes {options.rate} a second,"
            f" {options.seconds} s a measurement")


if __name__ == "__main__":
    sys.exit(run_benchmark("expiry", measure, describe, FLAGS))
