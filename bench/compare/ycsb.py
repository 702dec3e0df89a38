"""READs per GET under YCSB's workload B (95 % reads, 5 % updates, zipfian keys), counted by kvbench's
clients. Their cache of index groups is large enough and empty at the start."""

import json
import os
import subprocess

from common import Failed, kvserver, progress

FLAGS = {"--records": (100_000, "of YCSB, 1,012 bytes each"),
         "--operations": (1_000_000, "in each measurement")}
WORKLOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kvbench", "workloads",
                        "workloadb")


def kvbench(options, step):
    done = subprocess.run(
        [os.path.join(options.bin, "kvbench"), step, "-P", WORKLOAD, "-p",
         f"recordcount={options.records}", "-p", f"operationcount={options.operations}", "--server",
         options.address, "--transport", options.transport, "--poll", options.poll, "--output",
         "json"], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"kvbench {step} ended with status {done.returncode}")
    return json.loads(done.stdout)


def measure(options, figures):
    with kvserver(options, f"{max(64, options.records * 2048 >> 20)}MiB"):
        kvbench(options, "-load")
        for _ in range(options.repetitions):
            result = kvbench(options, "-t")
            figures.runs.append({"ycsb_b": result["client"]})
            figures.add("READs per GET, YCSB-B", result["client"]["reads_per_get"], 1.02)
            progress(f"{result['client']['reads_per_get']:.4f} READs per GET")
