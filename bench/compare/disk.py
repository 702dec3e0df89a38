"""What it costs that data survives, from durability.py, and beside it RocksDB's db_bench: fillrandom
with the options that a server's database says it has, in batches as large as the server's."""

import glob
import os
import re
import subprocess

import durability
from common import Failed, kvserver, progress

BATCH_RECORDS, BATCH_BYTES = 4096, 1 << 20  # of the server's applier, which ends one at either
KEY_BYTES = 16
VERSION_BYTES = 8  # that the server stores beside a value


def repeated(measure):
    """Over and over, on a disk."""
    def run(options, figures):
        durability.find_disk(options)
        for repetition in range(options.repetitions):
            measure(options, figures)
            progress(f"{repetition + 1} of {options.repetitions}")
    return run


def measure_background(options, figures):
    with durability.empty_directory(options) as scratch:
        settings = options_file(options, scratch)
        runs = len(figures.runs)
        durability.measure_background(options, figures)
        for run in figures.runs[runs:]:
            value_bytes = run["value_bytes"]
            records = options.records if value_bytes == 100 else options.records // 2
            rate = db_bench(scratch, settings, records, value_bytes)
            run["db_bench_per_s"] = rate
            figures.add(f"PUTs until flushed / db_bench, {value_bytes} B",
                        run["server"]["records_per_s"] / rate, 0.9, True)


def options_file(options, scratch):
    """The options of a server's database, as RocksDB has written them down."""
    data = os.path.join(scratch, "data")
    with kvserver(options, "64MiB", ["--data-dir", data]):
        pass
    found = sorted(glob.glob(os.path.join(data, "db", "OPTIONS-*")))
    if not found:
        raise Failed("the server's database has no OPTIONS file")
    return found[-1]


def db_bench(scratch, settings, records, value_bytes):
    """Records/s. It counts the writes into log and memtables, flushes and compactions that these wait
    for, and no sync at the end."""
    stored = value_bytes + VERSION_BYTES
    batch = min(records, BATCH_RECORDS, BATCH_BYTES // (KEY_BYTES + stored))
    done = subprocess.run(
        ["db_bench", "--benchmarks=fillrandom", f"--options_file={settings}",
         f"--db={os.path.join(scratch, 'db_bench')}", f"--num={records}",
         f"--key_size={KEY_BYTES}", f"--value_size={stored}", f"--batch_size={batch}",
         "--threads=1", "--compression_ratio=0.5"],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"^.*fillrandom\s*:.*?(\d+) ops/sec", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        raise Failed(f"db_bench ended with status {done.returncode}: {done.stdout[-300:]}")
    return float(found.group(1))
