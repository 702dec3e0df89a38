#!/usr/bin/env python3
"""`./run bench verbs`: what the verbs library costs over plain verbs. Instructions of a posted and of
a polled request, against a C program's loop on a device that only counts (natively, by callgrind);
bytes a second of a stream, against TCP over loopback and, where verbs are, against SENDs of a C
program; and there how long a message, a READ and a WRITE take, against perftest's programs. What is
compared runs in turn."""

import os
import re
import subprocess
import sys
import tempfile

from common import Failed, Misuse, program, progress, run_benchmark
from perftest import perftest

FLAGS = {"--iterations": (2000, "of each measurement of latency"),
         "--bytes": (64, "of each message, READ and WRITE"),
         "--rounds": (200, "of each loop whose instructions are counted"),
         "--stream-bytes": ("1024,16384,65536", "of each write of a stream, one after the other"),
         "--stream-mib": (64, "that each stream moves"),
         "--stream-depth": (8, "messages of a stream that are under way")}
# What the programs take, theirs and perftest's; the smallest is 1 where it is not said.
LEAST_ITERATIONS = 5
MOST = {"--iterations": 10**8, "--bytes": 2**30, "--stream-depth": 128}
MOST_STREAM_BYTES = 2**20
MORE_INSTRUCTIONS = 10
LATENCY_RATIO = 1.05
# The column of perftest's result line that has the median, and what of it is compared.
TOOLS = {"send": ("ib_send_lat", 18521), "read": ("ib_read_lat", 18522),
         "write": ("ib_write_lat", 18523)}
MEDIAN = 4
# What the counted loops do, and of how many at a time.
COUNTED = {"post": ("a post", "a doorbell"), "poll": ("a poll", "a poll"),
           "poll_in_place": ("a poll in place", "a poll")}
LOOPS = [f"{how}_{what}_{many}" for how in ("plain", "wrapped") for what in COUNTED
         for many in ("one", "many")]

# The streams of bench_verbs_streams, by transport; and what each of them is compared with.
STREAMS = {"verbs": ["send_receive", "credit_ring"], "shm": ["memory"]}
BESIDE = {"verbs": {"raw": "SENDs by verbs alone", "tcp": "TCP"}, "shm": {"tcp": "TCP"}}


def counted(options, rounds):
    """{loop: instructions of it and all that it calls}, and what the program says of itself."""
    with tempfile.TemporaryDirectory(prefix="rkv-callgrind-") as scratch:
        out = os.path.join(scratch, "out")
        result = program(options, "bench_verbs_overhead", "loops",
                       ["valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={out}"],
                       rounds=rounds)
        shown = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out],
                               check=True, capture_output=True, text=True).stdout
    counts = {}
    for line in shown.splitlines():
        found = re.match(r"\s*([\d,]+) .*?:(\w+)(?:\s|$)", line)
        if found and found.group(2) in LOOPS:
            # With debug information a function has a line for each file that it has code of; the whole is first.
            counts.setdefault(found.group(2), int(found.group(1).replace(",", "")))
    if set(counts) != set(LOOPS):
        raise Failed(f"callgrind saw no {', '.join(sorted(set(LOOPS) - set(counts)))}: have the"
                     " programs their symbols?")
    return counts, result


def measure_instructions(options, figures):
    """Two runs, one with more rounds: what happens once is in neither's difference."""
    fewer, _ = counted(options, options.rounds)
    more, result = counted(options, 2 * options.rounds)
    if result["plain"] != result["wrapped"]:
        raise Failed(f"the two ways have not done the same work: {result}")
    figures.runs.append({"counted": result})
    requests = {"one": 1, "many": result["many"]}
    for what, (name, at_a_time) in COUNTED.items():
        for many, count in requests.items():
            def each(how, loop=f"{what}_{many}", count=count):
                loop = f"{how}_{loop}"
                return (more[loop] - fewer[loop]) / (options.rounds * count)
            plain, wrapped = each("plain"), each("wrapped")
            row = f"instructions {name}, {count} {at_a_time}"
            figures.add(f"{row}: C", plain)
            figures.add(f"{row}: library", wrapped)
            figures.add(f"{row}: more", wrapped - plain, MORE_INSTRUCTIONS)


def measure_latency(options, figures):
    settings = {"bytes": options.bytes, "iterations": options.iterations}
    for repetition in range(options.repetitions):
        for phase, (tool, port) in TOOLS.items():
            ours = program(options, "bench_verbs", phase, **settings)
            raw = perftest(tool, options.address, port, options.bytes,
                           ["-n", str(options.iterations)])[MEDIAN]
            figures.runs.append({phase: ours, tool: raw})
            figures.add(f"{phase} p50 (us)", ours["p50_us"])
            figures.add(f"{tool} (us)", raw)
            figures.add(f"{phase} p50 / {tool}", ours["p50_us"] / raw, LATENCY_RATIO)
            if "plain_p50_us" in ours:
                figures.add(f"{phase} p50 / verbs' own functions", ours["p50_us"] / ours["plain_p50_us"],
                            LATENCY_RATIO)
        progress(f"repetition {repetition + 1} of {options.repetitions}")


def moved(options, phase, size, total):
    """What one stream says of itself, with MB/s of 10^6 bytes."""
    result = program(options, "bench_verbs_streams", phase, bytes=size, total=total,
                   depth=options.stream_depth)
    if not result["bytes_sent"] == result["bytes_received"] == total:
        raise Failed(f"{phase} has not moved {total} bytes: {result}")
    return {**result, "bytes": size, "mb_per_s": total / result["seconds"] / 1e6}


def measure_streams(options, figures):
    """All ways of one size are next to each other in time, and so is what a ratio is made of."""
    streams, beside = STREAMS[options.transport], BESIDE[options.transport]
    for repetition in range(options.repetitions):
        for size in sizes(options):
            total = options.stream_mib * 2**20 // size * size
            result = {phase: moved(options, phase, size, total) for phase in [*beside, *streams]}
            figures.runs.append({"streams": result})
            for phase, name in {**beside, **{s: f"stream, {s}" for s in streams}}.items():
                figures.add(f"{name}, {size} bytes (MB/s)", result[phase]["mb_per_s"])
            for stream in streams:
                for other, name in beside.items():
                    figures.add(f"stream, {stream}, {size} bytes / {name}",
                                result[stream]["mb_per_s"] / result[other]["mb_per_s"])
        progress(f"streams, repetition {repetition + 1} of {options.repetitions}")


def sizes(options):
    """--stream-bytes as numbers."""
    try:
        found = [int(size) for size in options.stream_bytes.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < size <= min(options.stream_mib * 2**20, MOST_STREAM_BYTES)
                            for size in found):
        raise Misuse(f"--stream-bytes is numbers, each at most --stream-mib and {MOST_STREAM_BYTES},"
                     f" not '{options.stream_bytes}'")
    return found


def check(options):
    """Refuses invalid options before anything is measured."""
    if options.iterations < LEAST_ITERATIONS:
        raise Misuse(f"--iterations is at least {LEAST_ITERATIONS}")
    for flag, most in MOST.items():
        if getattr(options, flag.strip("-").replace("-", "_")) > most:
            raise Misuse(f"{flag} is at most {most}")
    sizes(options)


def measure(options, figures):
    check(options)
    measure_instructions(options, figures)
    measure_streams(options, figures)
    if options.transport == "verbs":
        measure_latency(options, figures)


def describe(options):
    return (f"{options.bytes} bytes, {options.iterations} of each, {options.rounds} counted rounds,"
            f" streams of {options.stream_mib} MiB, depth {options.stream_depth}")


if __name__ == "__main__":
    sys.exit(run_benchmark("verbs", measure, describe, FLAGS, transport="verbs", poll="busy"))
