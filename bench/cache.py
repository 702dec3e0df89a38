#!/usr/bin/env python3
"""`./run bench cache`: a full cache of KV blocks for LLM inference, from Python: rkv with --evict beside
Redis with allkeys-lru, with the same memory and the same prompts. Prompts come by Zipf's law; the blocks
that are found are read into an array, the others are put. Hit rates, beside that of an exact LRU of as many
bytes, and prompts per second."""

import os
import sys
import types

from common import draw_bars, kvserver, progress, python_client, run_benchmark

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare"))
import rivals  # noqa: E402

BLOCKS = 8  # of a prompt
SIZES = (64, 1024)  # KiB
SHARES = (10, 25, 50)  # memory in percent of all blocks of all prompts
FLAGS = {"--mib": (256, "memory of each store"),
         "--python": ("/usr/bin/python3", "interpreter that the package was built for"),
         "--plot": ("", "SVG file to draw")}


def prompts_for(options, kib, share):
    return options.mib * 1024 * 100 // (share * BLOCKS * kib)


def requests_for(prompts):
    return 5 * prompts


def client(options, store, address, transport, kib, prompts, seed):
    return python_client(options, "cache_client.py", store, address, transport, kib * 1024, BLOCKS, prompts,
                         requests_for(prompts), seed)


def measure(options, figures):
    for repetition in range(options.repetitions):
        for kib in SIZES:
            for share in SHARES:
                prompts = prompts_for(options, kib, share)
                room = str(options.mib * 1024 // kib)
                found = {"exact LRU": client(options, "lru", room, "", kib, prompts, repetition)}
                for transport in (options.transport, "tcp"):
                    own = types.SimpleNamespace(**{**vars(options), "transport": transport})
                    with kvserver(own, f"{options.mib}MiB", ("--evict",)):
                        found[transport] = client(options, "rkv", options.address, transport, kib, prompts, repetition)
                with rivals.rival("redis", "--maxmemory", f"{options.mib}mb", "--maxmemory-policy",
                                  "allkeys-lru") as address:
                    found["redis"] = client(options, "redis", address, "", kib, prompts, repetition)
                figures.runs.append({"kib": kib, "share": share, **found})
                what = f"blocks of {kib} KiB, memory for {share} %"
                for store, figure in found.items():
                    figures.add(f"{what}: hit rate, {store}", figure["hit rate"])
                for transport in (options.transport, "tcp"):
                    figures.add(f"{what}: prompts/s, {transport} / Redis",
                                found[transport]["requests/s"] / found["redis"]["requests/s"])
                progress(f"{repetition + 1} of {options.repetitions}, {what}: " + ", ".join(
                    f"{store} {figure['hit rate']:.3f}" for store, figure in found.items()))
    if options.plot:
        plot(options, figures)


def plot(options, figures):
    """Medians of the hit rates of all repetitions, as bars."""
    stores = ("exact LRU", options.transport, "redis")
    groups = {}
    for kib in SIZES:
        for share in SHARES:
            runs = [run for run in figures.runs if (run["kib"], run["share"]) == (kib, share)]
            groups[f"{kib} KiB, {share} %"] = [sorted(run[store]["hit rate"] for run in runs)[len(runs) // 2]
                                               for store in stores]
    draw_bars(options.plot, ("an exact LRU", "rkv --evict", "Redis allkeys-lru"), groups, "hit rate", highest="1")


def describe(options):
    return f"{options.mib} MiB of memory, prompts of {BLOCKS} blocks, Zipf 0.99"


if __name__ == "__main__":
    sys.exit(run_benchmark("cache", measure, describe, FLAGS, repetitions=3))
