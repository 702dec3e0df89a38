"""`./run bench get --transport shm`: GET over shared memory against copies of the same bytes."""

import os
import platform
import re
import subprocess
import sys
import tempfile

from common import Failed, bench_get, kvserver, print_figures, write_json

VALUES = [16, 100, 1024, 4096, 16384, 65536]
RECORDS_BYTES = 192 << 20  # of records in all: far beyond the private caches of a processor
MOST_KEYS = 500_000


def keys_for(value_bytes):
    return min(MOST_KEYS, RECORDS_BYTES // (value_bytes + 64))


def instructions(options, settings):
    """Instructions of the client per warm GET: callgrind's counts of two runs, one with more GETs."""
    counts = []
    for gets in (2_000, 12_000):
        with tempfile.TemporaryDirectory(prefix="rkv-callgrind-") as scratch:
            out = os.path.join(scratch, "out")
            prefix = ["valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={out}"]
            bench_get(options, "warm", prefix, **{**settings, "gets": gets})
            with open(out, encoding="utf-8") as text:
                totals = re.search(r"^(?:summary|totals): (\d+)", text.read(), re.MULTILINE)
        if not totals:
            raise Failed("callgrind wrote no total")
        counts.append(int(totals.group(1)))
    return (counts[1] - counts[0]) / 10_000


def measure_size(options, value_bytes, samples, runs):
    settings = {"transport": "shm", "gets": options.gets, "keys": keys_for(value_bytes),
                "value_bytes": value_bytes}
    with kvserver(options, "shm", "640MiB"):
        bench_get(options, "load", **settings)
        for _ in range(options.repetitions):
            copy = bench_get(options, "copy", **settings)
            warm = bench_get(options, "warm", **settings)
            cold = bench_get(options, "cold", **settings)
            runs.append({"value_bytes": value_bytes, "copy": copy, "warm": warm, "cold": cold})
            samples.setdefault(f"warm p50 (us), {value_bytes} B", []).append(warm["p50_us"])
            samples.setdefault(f"warm p99 (us), {value_bytes} B", []).append(warm["p99_us"])
            samples.setdefault(f"cold p50 (us), {value_bytes} B", []).append(cold["p50_us"])
            samples.setdefault(f"cold p99 (us), {value_bytes} B", []).append(cold["p99_us"])
            samples.setdefault(f"warm p50 / copy p50, {value_bytes} B", []).append(
                warm["p50_us"] / copy["p50_us"])
            print(f"  {value_bytes} B: copy {copy['p50_us']:.2f} us, warm {warm['p50_us']:.2f} us,"
                  f" cold {cold['p50_us']:.2f} us", file=sys.stderr, flush=True)
        if value_bytes == 100:
            measure_rates(options, settings, samples, runs)


def measure_rates(options, settings, samples, runs):
    for _ in range(options.repetitions):
        for threads in (1, 2):
            rate = bench_get(options, "threads", threads=threads,
                             **{**settings, "gets": 10 * options.gets})
            samples.setdefault(f"GETs/s, {threads} client thread(s), 100 B", []).append(
                rate["gets_per_s"])
            runs.append({"threads": threads, **rate})
    many = bench_get(options, "pipelined", **{**settings, "gets": options.cpu_gets})
    samples["server user CPU per GET (ns)"] = [many["server_user_cpu_ns_per_get"]]
    samples["client instructions per warm GET, 100 B"] = [
        instructions(options, {**settings, "keys": 10_000})]


def goal_of(name):
    if " / " in name:
        return (name, 3, False)
    if name.startswith("server user"):
        return (name, 50, False)
    if name.startswith("client instructions"):
        return (name, 400, False)
    return (name, None, False)


def run(options):
    samples, runs = {}, []
    for value_bytes in VALUES:
        measure_size(options, value_bytes, samples, runs)
    print(f"\nshared memory, Linux {platform.release()}; at most {MOST_KEYS} keys and"
          f" {RECORDS_BYTES >> 20} MiB of records, {options.gets} GETs a measurement, drawn evenly")
    cpu = subprocess.run(["lscpu"], check=False, capture_output=True, text=True).stdout
    model = re.search(r"Model name:\s*(.*)", cpu)
    environment = {"transport": "shm", "kernel": platform.release(),
                   "cpu": model.group(1) if model else "unknown", "cores": os.cpu_count(),
                   "poll": options.poll, "gets": options.gets, "command": " ".join(sys.argv)}
    figures = print_figures([goal_of(name) for name in samples], samples)
    write_json(options.json, environment, figures, runs)
