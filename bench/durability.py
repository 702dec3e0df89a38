#!/usr/bin/env python3
"""`./run bench durability`: what it costs that data survives. The rate at which PUTs reach the disk
against RocksDB's own batch loop; PUTs beside a busy disk against PUTs of a server without one;
PUTs (sync) of many writers against fdatasync; the first GET after a start and the loading of all
records against RocksDB's own opening and iterating. Over shared memory; the data must be on a real
disk."""

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from common import Failed, Misuse, kvserver, program, progress, run_benchmark, wait_for

STARTED_KEYS = (10_000, 100_000, 1_000_000)
LOADED = re.compile(r"loaded: (\d+) records in (\d+) ms")
FLAGS = {"--records": (500_000, "of 100 bytes, half as many of 1,000, to write in the background"),
         "--slices": (10, "of PUTs with and without, and of groups and fdatasync, a repetition"),
         "--slice-ms": (500, "of PUTs (memory)"),
         "--per-second": (2_000, "PUTs (memory) on a schedule"),
         "--writers": (16, "of PUTs (sync)"),
         "--most-keys": (1_000_000, "of the sizes 10^4 to 10^6, the largest to start with"),
         "--anywhere": (0, "1: not on a disk either, where the figures mean nothing"),
         "--scratch": ("", "directory for the data; default: beside the programs")}
STEPS = {"--steps": ("background,put,sync,restart", "which of these, and of log")}
# Ways to keep a log, of disk_log.h: the name of the figures, and the flags.
LOGS = [("RocksDB's log", {"way": "rocksdb"}),
        ("growing file", {"way": "growing"}),
        ("zeroed file", {"way": "zeroed"}),
        ("zeroed file, gathering", {"way": "zeroed", "gather_us": 100}),
        ("zeroed file, two syncs", {"way": "zeroed", "under_way": 2}),
        ("zeroed file, two syncs, gathering", {"way": "zeroed", "under_way": 2, "gather_us": 100})]


def measure(options, figures):
    known = {"background": measure_background, "put": measure_put, "sync": measure_sync,
             "log": measure_log, "restart": measure_restart}
    steps = options.steps.split(",")
    for step in steps:
        if step not in known:
            raise Misuse(f"--steps are some of {', '.join(known)}, not {step}")
    find_disk(options)
    for step in steps:
        for repetition in range(options.repetitions):
            known[step](options, figures)
            progress(f"{step} {repetition + 1} of {options.repetitions}")


def find_disk(options):
    """Raises Misuse where there is no such directory, Failed where it is not on a disk."""
    options.scratch = options.scratch or os.path.dirname(os.path.abspath(options.bin))
    if not os.path.isdir(options.scratch):
        raise Misuse(f"no such directory for the data: {options.scratch}; give --scratch DIRECTORY")
    options.file_system = file_system(options)


def file_system(options):
    shown = subprocess.run(["df", "--output=fstype", options.scratch], check=True,
                           capture_output=True, text=True)
    kind = shown.stdout.split()[1]
    if kind in ("tmpfs", "ramfs", "overlay") and not options.anywhere:
        raise Failed(f"{options.scratch} is on {kind}, not on a disk: give --scratch DIRECTORY")
    return kind


@contextlib.contextmanager
def empty_directory(options):
    directory = tempfile.mkdtemp(prefix="rkv-durability-", dir=options.scratch)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def record(figures, what, **one):
    figures.runs.append({"what": what, **one})


# ---- the rate at which PUTs reach the disk

def measure_background(options, figures):
    for value_bytes, keys in ((100, options.records), (1000, options.records // 2)):
        settings = {"keys": keys, "value_bytes": value_bytes}
        with empty_directory(options) as data:
            loop = program(options, "bench_disk", "rocksdb", directory=data, **settings)
        with empty_directory(options) as data:
            queue = program(options, "bench_disk", "queue", directory=data, **settings)
        with empty_directory(options) as data:
            with kvserver(options, "2GiB", ["--data-dir", data]):
                served = program(options, "bench_durability", "background", **settings)
        record(figures, "background", value_bytes=value_bytes, rocksdb=loop, queue=queue,
             server=served)
        size = f"{value_bytes} B"
        rate = loop["records_per_s"]
        figures.add(f"RocksDB's loop (records/s), {size}", rate)
        figures.add(f"write-behind alone / RocksDB's loop, {size}", queue["records_per_s"] / rate,
                    0.9, True)
        figures.add(f"PUTs until flushed / RocksDB's loop, {size}", served["records_per_s"] / rate,
                    0.9, True)
        figures.add(f"PUTs refused for now: queue full, {size}", served["queue_full"])


# ---- logs that a sync could go to

def measure_log(options, figures):
    for name, flags in LOGS:
        with empty_directory(options) as data:
            one = program(options, "bench_disk", "log", directory=data, writers=options.writers,
                          slices=options.slices, slice_ms=options.slice_ms, **flags)
        record(figures, "log", log=name, **one)
        own = name != LOGS[0][0]
        figures.add(f"time of a group / fdatasync, {name}", one["group_us"] / one["fdatasync_p50_us"],
                    *([1.5] if own else []))
        figures.add(f"p50 of a PUT / fdatasync, {name}", one["put_p50_us"] / one["fdatasync_p50_us"])
        figures.add(f"flushes of the device a sync, {name}", one["flushes_per_sync"])


# ---- PUTs (memory) with and without a disk

def measure_put(options, figures):
    host = options.address.rpartition(":")[0]
    other = f"{host}:{int(options.address.rpartition(':')[2]) + 1}"
    with (empty_directory(options) as data, kvserver(options, "256MiB", ["--data-dir", data]),
          kvserver(options, "256MiB", address=other)):
        one = program(options, "bench_durability", "put", other=other, keys=20_000,
                      slices=options.slices, slice_ms=options.slice_ms,
                      per_second=options.per_second)
    record(figures, "put", **one)
    for load, words in (("closed", "one after the other"), ("paced", f"{options.per_second}/s")):
        def ratio(percentile):
            return statistics.median(pair["with"][load][percentile]
                                     / pair["without"][load][percentile] for pair in one["slices"])
        for kind in ("without", "with"):
            figures.add(f"PUT p99 (us), {words}, {kind} a disk", statistics.median(
                pair[kind][load]["p99_us"] for pair in one["slices"]))
        figures.add(f"PUT p50 with / without a disk, {words}", ratio("p50_us"))
        figures.add(f"PUT p99 with / without a disk, {words}", ratio("p99_us"), 1.1)


# ---- PUTs (sync)

def measure_sync(options, figures):
    with (empty_directory(options) as data, empty_directory(options) as beside,
          kvserver(options, "256MiB", ["--data-dir", data])):
        for phase, words in (("sync", "clients"), ("sync_pipelined", "in flight")):
            one = program(options, "bench_durability", phase, directory=beside, keys=20_000,
                          writers=options.writers, slices=options.slices,
                          **({"poll": "event"} if phase == "sync" else {}))
            record(figures, phase, **one)
            add_groups(figures, f"{options.writers} {words}", one["slices"])


def add_groups(figures, words, slices):
    def median(value):
        return statistics.median(value(pair) for pair in slices)
    figures.add(f"group (us), {words}", median(lambda pair: pair["group_us"]))
    figures.add(f"fdatasync of its bytes (us), {words}", median(lambda pair: pair["fdatasync_us"]))
    figures.add(f"group / fdatasync, {words}",
                median(lambda pair: pair["group_us"] / pair["fdatasync_us"]), 1.2)
    figures.add(f"group / fastest tenth of fdatasyncs, {words}",
                median(lambda pair: pair["group_us"] / pair["fdatasync_p10_us"]))
    figures.add(f"PUTs (sync) a group, {words}", median(lambda pair: pair["puts_per_group"]))


# ---- starts

def measure_restart(options, figures):
    for keys in [size for size in STARTED_KEYS if size <= options.most_keys]:
        with contextlib.ExitStack() as stack:
            stopped = stack.enter_context(empty_directory(options))
            with kvserver(options, "1GiB", ["--data-dir", stopped]) as server:
                program(options, "bench_durability", "background", keys=keys, value_bytes=100)
                server.kill()
                server.wait()
            start(options, figures, stopped, keys)


# Each opens a copy of what the killed server has left: opening changes it.
def start(options, figures, stopped, keys):
    with empty_directory(options) as scratch:
        data = shutil.copytree(stopped, os.path.join(scratch, "server"))
        since = time.monotonic_ns()
        with kvserver(options, "1GiB", ["--data-dir", data], wait=False) as server:
            started = program(options, "bench_durability", "first_get", keys=keys, since=since)
            wait_for(lambda: LOADED.search(server.log_text()), "loading", server)
            loaded = LOADED.search(server.log_text())
            server.kill()
            server.wait()
        data = shutil.copytree(stopped, os.path.join(scratch, "rocksdb"))
        raw = program(options, "bench_disk", "read", directory=data, keys=keys)
    if int(loaded.group(1)) != keys or raw["records"] != keys:
        raise Failed("not all records were there after the start")
    record(figures, "restart", keys=keys, server=started, rocksdb=raw)
    figures.add(f"start to first GET (s), {keys} keys", started["first_get_seconds"])
    figures.add(f"the same beyond RocksDB's opening (s), {keys} keys",
                started["first_get_seconds"] - raw["open_seconds"], 1)
    if keys >= 1_000_000:
        rate = keys / (int(loaded.group(2)) / 1000)
        figures.add(f"the same by processor time, {keys} keys",
                    raw["cpu_seconds"] / started["cpu_seconds"])
        figures.add(f"loading / RocksDB's iterator, {keys} keys", rate / raw["records_per_s"], 0.7,
                    True)


def describe(options):
    return f"data on {options.file_system}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(run_benchmark("durability", measure, describe, {**FLAGS, **STEPS}))
