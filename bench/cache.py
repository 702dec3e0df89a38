#!/usr/bin/env python3
"""`./run bench cache`: a full cache of KV blocks for LLM inference, from Python: rkv with --evict beside
Redis with allkeys-lru, with the same memory and the same prompts. Prompts come by Zipf's law; the blocks
that are found are read into an array, the others are put. Hit rates, beside that of an exact LRU of as many
bytes, how much of the memory holds blocks on average, and prompts per second."""

import os
import sys
import types

from common import draw_bars, kvserver, progress, python_client, run_benchmark

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare"))
import rivals  # noqa: E402

SHARES = (10, 25, 50)  # memory in percent of all blocks of all prompts
# By KiB of a block: how many a prompt has, the memory in --mib, and the shares.
SIZES = {64: (8, 1, SHARES), 1024: (8, 1, SHARES), 4096: (2, 1, (25,)), 8192: (2, 2, (25,)),
         15360: (2, 2, (25,))}
FLAGS = {"--mib": (256, "memory of each store; twice that for blocks of 8 MiB and more"),
         "--sizes": (",".join(map(str, SIZES)), "KiB of a block, one after the other"),
         "--python": ("/usr/bin/python3", "interpreter that the package was built for"),
         "--plot": ("", "SVG file to draw")}


def cases(options):
    """Of each: KiB of a block, blocks of a prompt, MiB of memory, share."""
    for kib in map(int, options.sizes.split(",")):
        blocks, times, shares = SIZES[kib]
        for share in shares:
            yield kib, blocks, times * options.mib, share


def prompts_for(mib, kib, blocks, share):
    return mib * 1024 * 100 // (share * blocks * kib)


def requests_for(prompts):
    return 5 * prompts


def client(options, store, address, transport, kib, blocks, prompts, seed):
    return python_client(options, "cache_client.py", store, address, transport, kib * 1024, blocks, prompts,
                         requests_for(prompts), seed)


def measure(options, figures):
    for repetition in range(options.repetitions):
        for kib, blocks, mib, share in cases(options):
            load = (kib, blocks, prompts_for(mib, kib, blocks, share), repetition)
            found = {"exact LRU": client(options, "lru", str(mib * 1024 // kib), "", *load)}
            for transport in (options.transport, "tcp"):
                own = types.SimpleNamespace(**{**vars(options), "transport": transport})
                with kvserver(own, f"{mib}MiB", ("--evict",)):
                    found[transport] = client(options, "rkv", options.address, transport, *load)
            with rivals.rival("redis", "--maxmemory", f"{mib}mb", "--maxmemory-policy", "allkeys-lru") as address:
                found["redis"] = client(options, "redis", address, "", *load)
            figures.runs.append({"kib": kib, "share": share, **found})
            what = f"blocks of {kib} KiB, memory for {share} %"
            for store, figure in found.items():
                figures.add(f"{what}: hit rate, {store}", figure["hit rate"])
                figures.add(f"{what}: memory that holds blocks, {store}", figure["live bytes"] / (mib << 20))
            for transport in (options.transport, "tcp"):
                figures.add(f"{what}: prompts/s, {transport} / Redis",
                            found[transport]["requests/s"] / found["redis"]["requests/s"])
            progress(f"{repetition + 1} of {options.repetitions}, {what}: " + ", ".join(
                f"{store} {figure['hit rate']:.3f} ({figure['live bytes'] / (mib << 20):.2f})"
                for store, figure in found.items()))
    if options.plot:
        plot(options, figures)


def plot(options, figures):
    """Medians of the hit rates of all repetitions, as bars."""
    stores = ("exact LRU", options.transport, "redis")
    groups = {}
    for kib, _, _, share in cases(options):
        runs = [run for run in figures.runs if (run["kib"], run["share"]) == (kib, share)]
        groups[f"{kib} KiB, {share} %"] = [sorted(run[store]["hit rate"] for run in runs)[len(runs) // 2]
                                           for store in stores]
    draw_bars(options.plot, ("an exact LRU", "rkv --evict", "Redis allkeys-lru"), groups, "hit rate", highest="1")


def describe(options):
    return f"{options.mib} MiB of memory, prompts of 8 blocks (2 of 4 MiB and more), Zipf 0.99"


if __name__ == "__main__":
    sys.exit(run_benchmark("cache", measure, describe, FLAGS, repetitions=3))
