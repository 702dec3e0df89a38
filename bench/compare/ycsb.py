"""kvbench's workloads of YCSB: READs per GET under B, counted by its clients, whose cache of index
groups is large enough and empty at the start; and rates of A, B, C and F, one after the other and 32
in flight, against each other and against the same mixes of Redis, pipelined."""

import json
import os
import subprocess

import rivals
from common import Failed, kvserver, program, progress

FLAGS = {"--records": (100_000, "of YCSB, 1,012 bytes each"),
         "--operations": (1_000_000, "in each measurement")}
MIX_FLAGS = {"--records": (200_000, "of one field of 100 bytes"),
             "--operations": (1_000_000, "in each measurement; a fifth as many of Redis")}
WORKLOADS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kvbench", "workloads")
IN_FLIGHT = 32


def kvbench(options, step, workload, *more):
    done = subprocess.run(
        [os.path.join(options.bin, "kvbench"), step, "-P",
         os.path.join(WORKLOADS, f"workload{workload}"), "-p", f"recordcount={options.records}", "-p",
         f"operationcount={options.operations}", "--server", options.address, "--transport",
         options.transport, "--poll", options.poll, "--output", "json", *more],
        check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"kvbench {step} ended with status {done.returncode}")
    return json.loads(done.stdout)


def memory(options, record_bytes):
    return f"{max(64, options.records * record_bytes >> 20)}MiB"


def measure(options, figures):
    with kvserver(options, memory(options, 2048)):
        kvbench(options, "-load", "b")
        for _ in range(options.repetitions):
            result = kvbench(options, "-t", "b")
            figures.runs.append({"ycsb_b": result["client"]})
            figures.add("READs per GET, YCSB-B", result["client"]["reads_per_get"], 1.02)
            progress(f"{result['client']['reads_per_get']:.4f} READs per GET")


def of_one_field(options, step, workload, in_flight):
    """Operations/s on records of a single field of 100 bytes, which is as much as Redis gets."""
    return kvbench(options, step, workload, "-p", "fieldcount=1", "-p", "fieldlength=100", "-p",
                   "writeallfields=true", "--in-flight", str(in_flight))["overall"]["throughput_per_s"]


def of_redis(options, address, phase, **flags):
    """Operations/s, by clients that spin before they wait and by clients that wait at once: the
    better of the two."""
    return max(program(options, "bench_tcp", phase, server=address, keys=options.records,
                       value_bytes=100, depth=IN_FLIGHT, poll=poll, **flags)["operations_per_s"]
               for poll in ("adaptive", "event"))


def measure_mixes(options, figures):
    with kvserver(options, memory(options, 1024)), rivals.rival("redis") as address:
        of_one_field(options, "-load", "a", IN_FLIGHT)
        of_redis(options, address, "load")
        for _ in range(options.repetitions):
            repeat_mixes(options, address, figures)


def repeat_mixes(options, address, figures):
    rates = {}
    for workload in "abcf":
        for in_flight in (1, IN_FLIGHT):
            rates[workload, in_flight] = of_one_field(options, "-t", workload, in_flight)
    redis = {workload: of_redis(options, address, "run", workload=workload,
                                gets=options.operations // 5) for workload in "abf"}
    figures.runs.append({"store": {f"{workload}, {n}": rate for (workload, n), rate in rates.items()},
                         "redis": redis})
    for workload, rate in redis.items():
        figures.add(f"YCSB-{workload.upper()}, 32 in flight, / Redis",
                    rates[workload, IN_FLIGHT] / rate, 5, True)
    figures.add("YCSB-A, 32 in flight / 1 in flight", rates["a", IN_FLIGHT] / rates["a", 1], 3, True)
    for in_flight in (1, IN_FLIGHT):
        figures.add(f"YCSB-B / YCSB-C, {in_flight} in flight",
                    rates["b", in_flight] / rates["c", in_flight], 0.7, True)
    progress("; ".join(f"{workload.upper()} {rates[workload, 1] / 1e3:.0f} and"
                       f" {rates[workload, IN_FLIGHT] / 1e3:.0f}" for workload in "abcf")
             + " thousand/s, Redis " + ", ".join(f"{rate / 1e3:.0f}" for rate in redis.values()))
