#!/usr/bin/env python3
"""`./run bench counters`: what changing a counter costs, by a request and by an RDMA atomic; over
verbs against raw atomics of perftest, taken in turn on the same device."""

import argparse
import os
import platform
import subprocess
import sys

from common import Failed, Figures, kvserver, program, write_json
from perftest import perftest, rdma_environment

ATOMIC = ["-A", "FETCH_AND_ADD"]


def phase(options, name):
    return program(options, "bench_counters", server=options.address, phase=name,
                   transport=options.transport, poll=options.poll, depth=options.depth,
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
    for repetition in range(options.repetitions):
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
        print(f"  repetition {repetition + 1} of {options.repetitions}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./run bench counters", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--transport", default="verbs", choices=["verbs", "shm"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--additions", type=int, default=5000, help="in each measurement")
    parser.add_argument("--depth", type=int, default=32, help="atomics in flight, pipelined")
    parser.add_argument("--poll", default="busy", choices=["adaptive", "busy", "event"],
                        help="how the client waits; perftest always spins")
    parser.add_argument("--bin", default="build/release/bin", help="where the programs are")
    parser.add_argument("--address", help="HOST:PORT of the server to start",
                        default=os.environ.get("RKV_RDMA_ADDRESS", "127.0.0.1") + ":7471")
    options = parser.parse_args()
    figures = Figures()
    try:
        with kvserver(options, options.transport, "64MiB"):
            measure(options, figures)
    except (Failed, OSError, subprocess.SubprocessError) as problem:
        print(f"bench counters: {problem}", file=sys.stderr)
        return 4
    about = rdma_environment() if options.transport == "verbs" else {"kernel": platform.release()}
    print(f"\n{about.get('note') or options.transport}, Linux {about['kernel']}; {options.additions}"
          f" additions a measurement, depth {options.depth}, client polls {options.poll}")
    write_json(options.json, {**about, "command": " ".join(sys.argv)}, figures.print(), figures.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
