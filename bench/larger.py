#!/usr/bin/env python3
"""`./run bench larger`: data four times the server's memory under YCSB's workload B, against LRU on
the same operations; and a server that is killed and started again."""

import argparse
import os
import platform
import subprocess
import sys
import tempfile

from common import Failed, Figures, kvserver, program, write_json

MEMORY_MIB = 64


def phase(options, name):
    return program(options, "bench_larger", server=options.address, phase=name,
                   transport=options.transport, keys=options.keys, operations=options.operations)


def measure(options, figures):
    with tempfile.TemporaryDirectory(prefix="rkv-bench-") as data:
        extra = ["--data-dir", data]
        with kvserver(options, options.transport, f"{MEMORY_MIB}MiB", extra):
            filled = phase(options, "fill")
            figures.runs.append({"fill": filled})
            figures.add("keys / records in memory, filled", options.keys / filled["records"])
            for _ in range(options.repetitions):
                one = phase(options, "mix")
                figures.runs.append({"mix": one})
                figures.add("GETs by READ alone (%)", 100 * one["hit_rate"])
                figures.add("hits of LRU, same operations (%)", 100 * one["lru_hit_rate"])
                figures.add("points below LRU", 100 * (one["lru_hit_rate"] - one["hit_rate"]), 5)
        for _ in range(options.repetitions):
            with kvserver(options, options.transport, f"{MEMORY_MIB}MiB", extra) as server:
                one = phase(options, "restart")
                figures.runs.append({"restart": one})
                figures.add("ready, then first GET answered (s)", one["first_get_seconds"], 2)
                figures.add("loaded, of all it takes (s)", one["loaded_seconds"])
                server.kill()
                server.wait()


def main():
    parser = argparse.ArgumentParser(prog="./run bench larger", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--transport", default="shm", choices=["verbs", "shm"])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--keys", type=int, default=220_000,
                        help=f"records of 1,000 bytes, for {MEMORY_MIB} MiB")
    parser.add_argument("--operations", type=int, default=500_000)
    parser.add_argument("--bin", default="build/release/bin", help="where the programs are")
    parser.add_argument("--address", help="HOST:PORT of the server to start",
                        default=os.environ.get("RKV_RDMA_ADDRESS", "127.0.0.1") + ":7471")
    options = parser.parse_args()
    figures = Figures()
    try:
        measure(options, figures)
    except (Failed, OSError, subprocess.SubprocessError) as problem:
        print(f"bench larger: {problem}", file=sys.stderr)
        return 4
    note = "SoftRoCE or hardware" if options.transport == "verbs" else "shared memory"
    print(f"\n{note}, Linux {platform.release()}; {options.keys} keys of 1,000 bytes, {MEMORY_MIB} MiB,"
          f" {options.operations} operations a measurement")
    environment = {"transport": options.transport, "kernel": platform.release(),
                   "cores": os.cpu_count(), "command": " ".join(sys.argv)}
    write_json(options.json, environment, figures.print(), figures.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
