#!/usr/bin/env python3
"""`./run bench blocks`: the Python client as a cache of KV blocks for LLM inference, beside Redis doing
the same by redis-py with hiredis. Batches of blocks of one size are put from a numpy array and read
into another one, and by rkv also into registered memory; MiB/s, one thread, all in memory. Both read by
one process on this host: rkv over --transport and over TCP, Redis over loopback TCP."""

import os
import sys
import types

from common import draw_bars, kvserver, progress, python_client, run_benchmark

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare"))
import rivals  # noqa: E402

SIZES = (64, 256, 1024, 4096)  # KiB
FLAGS = {"--mib": (128, "of blocks of each size"), "--batch-mib": (8, "of blocks in one call"),
         "--python": ("/usr/bin/python3", "interpreter that the package was built for"),
         "--plot": ("", "SVG file to draw")}


def client(options, store, address, transport, kib):
    count = max(1, options.mib * 1024 // kib)
    batch = max(1, options.batch_mib * 1024 // kib)
    return python_client(options, "blocks_client.py", store, address, transport, kib * 1024, count, batch, 3)


def measure(options, figures):
    for repetition in range(options.repetitions):
        for kib in SIZES:
            found = {}
            for transport in (options.transport, "tcp"):
                own = types.SimpleNamespace(**{**vars(options), "transport": transport})
                with kvserver(own, f"{4 * options.mib}MiB"):
                    found[transport] = client(options, "rkv", options.address, transport, kib)
            with rivals.rival("redis") as address:
                found["redis"] = client(options, "redis", address, "", kib)
            figures.runs.append({"kib": kib, **found})
            for kind in ("get", "put"):
                for store, rates in found.items():
                    figures.add(f"{kind.upper()} of blocks of {kib} KiB, {store} (MiB/s)", rates[kind])
            for transport in (options.transport, "tcp"):
                rates = found[transport]
                figures.add(f"GET of blocks of {kib} KiB, {transport}, into registered memory / copied",
                            rates["registered get"] / rates["get"])
            for kind in ("get", "put"):
                for transport in (options.transport, "tcp"):
                    figures.add(f"{kind.upper()} of blocks of {kib} KiB, {transport} / Redis",
                                found[transport][kind] / found["redis"][kind])
            progress(f"{repetition + 1} of {options.repetitions}, {kib} KiB, MiB/s: " + "; ".join(
                f"{store} get {rates['get']:.0f} put {rates['put']:.0f}" for store, rates in found.items()))
    if options.plot:
        plot(options, figures)


def plot(options, figures):
    """Medians of all repetitions, as bars."""
    stores = (options.transport, "tcp", "redis")
    groups = {}
    for kind in ("get", "put"):
        for kib in SIZES:
            rates = [sorted(run[store][kind] for run in figures.runs if run["kib"] == kib) for store in stores]
            groups[f"{kind} {kib} KiB"] = [each[len(each) // 2] for each in rates]
    draw_bars(options.plot, (f"rkv over {options.transport}", "rkv over TCP", "Redis over TCP"), groups, "MiB/s")


def describe(options):
    return f"{options.mib} MiB of blocks of each size, {options.batch_mib} MiB in a call"


if __name__ == "__main__":
    sys.exit(run_benchmark("blocks", measure, describe, FLAGS, repetitions=3))
