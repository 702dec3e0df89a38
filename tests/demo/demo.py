#!/usr/bin/env python3
"""The demonstration behind `./run demo`, where verbs are: load a file of real records into a
kvserver, read every record back by one-sided GETs and compare, flush, kill the server with
SIGKILL, start it again on the same data directory, compare again. Exit status 0 only if every
record compared equal both times."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time


class Failed(Exception):
    """The demonstration cannot go on; the text is one sentence for the user."""


def server_cpu_seconds(pid):
    """User CPU time of a process so far (proc(5), field 14 of stat)."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        after_name = stat.read().rpartition(")")[2].split()
    return int(after_name[11]) / os.sysconf("SC_CLK_TCK")


def wait_until_idle(process, still_s=0.5, limit_s=60):
    """RocksDB goes on in the background after a load or a start; that is not a cost of the GETs that
    follow. Returns when the process has used no user CPU for a while."""
    end = time.monotonic() + limit_s
    last, since = server_cpu_seconds(process.pid), time.monotonic()
    while time.monotonic() < end and time.monotonic() - since < still_s:
        time.sleep(0.05)
        now = server_cpu_seconds(process.pid)
        if now != last:
            last, since = now, time.monotonic()


class Server:
    """A kvserver process; its log goes to a file that is shown when something fails."""

    def __init__(self, program, transport, address, data_dir, memory, log_path):
        self.log_path = log_path
        self.log = open(log_path, "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            [program, "--transport", transport, "--no-auth", "--listen", address, "--data-dir", data_dir,
             "--memory", memory],
            stdout=self.log, stderr=subprocess.STDOUT)
        self.wait_until_ready()

    def wait_until_ready(self, limit_s=180):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                text = log.read()
            if "kvserver ready" in text:
                for shown in ("transport ", "kvserver ready"):
                    print("  " + next(l for l in text.splitlines() if shown in l))
                return
            if self.process.poll() is not None:
                raise Failed(f"kvserver ended with status {self.process.returncode}:\n{text}")
            time.sleep(0.02)
        raise Failed(f"kvserver was not ready within {limit_s} s:\n{text}")

    def expect_running(self):
        if self.process.poll() is not None:
            raise Failed(f"kvserver ended with status {self.process.returncode}; see its log")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=60) != 0:
            raise Failed(f"kvserver ended with status {self.process.returncode}; see its log")


class Client:
    def __init__(self, program, transport, address):
        self.base = [program, "--transport", transport, "--server", address]

    def run(self, *args):
        done = subprocess.run([*self.base, *args], check=False)
        if done.returncode != 0:
            raise Failed(f"`kvclient {' '.join(args)}` ended with status {done.returncode}")

    def json(self, *args, may_fail=False):
        done = subprocess.run([*self.base, "--output", "json", *args], check=False,
                              stdout=subprocess.PIPE)
        if done.returncode != 0 and not may_fail:
            raise Failed(f"`kvclient {' '.join(args)}` ended with status {done.returncode}")
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            raise Failed(f"`kvclient {' '.join(args)}` gave no JSON: {error}") from error


def compare(client, server, path, title):
    print(title, flush=True)
    wait_until_idle(server.process)
    before = server_cpu_seconds(server.process.pid)
    result = client.json("verify", "--sequential", path, may_fail=True)
    cpu = server_cpu_seconds(server.process.pid) - before
    result["server_user_cpu_ns_per_get"] = round(cpu * 1e9 / max(1, result["gets"]), 1)
    return result


ROWS = [
    ("records", "records"), ("bytes", "bytes"), ("gets", "GETs"),
    ("one_sided_gets", "answered one-sidedly"), ("rdma_reads_per_get", "RDMA READs per GET"),
    ("retries", "retries"), ("tears_detected", "tears detected"), ("p50_us", "p50 (us)"),
    ("p99_us", "p99 (us)"), ("server_user_cpu_ns_per_get", "server user CPU per GET (ns)"),
    ("missing", "missing"), ("mismatches", "different"),
]


def print_table(first, second):
    print(f"\n{'':32}{'loaded':>14}{'after restart':>16}")
    for key, name in ROWS:
        cells = [f"{r[key]:,.2f}" if isinstance(r[key], float) else f"{r[key]:,}"
                 for r in (first, second)]
        print(f"{name:32}{cells[0]:>14}{cells[1]:>16}")


def all_equal(result):
    return (result["records"] > 0 and result["missing"] == 0 and result["mismatches"] == 0
            and result["gets"] >= result["records"] and result["one_sided_gets"] == result["gets"])


def demonstrate(options, scratch):
    data_dir = os.path.join(scratch, "data")
    client = Client(os.path.join(options.bin, "kvclient"), options.transport, options.address)
    start = lambda name: Server(os.path.join(options.bin, "kvserver"), options.transport,
                                options.address, data_dir, options.memory,
                                os.path.join(scratch, name))
    print("starting kvserver")
    server = start("server-1.log")
    try:
        print("loading", options.file, flush=True)
        client.run("load", options.file)
        first = compare(client, server, options.file, "reading every record back (one-sided)")
        print("waiting until everything is on disk (flush)", flush=True)
        client.run("flush")
        print("killing kvserver with SIGKILL and starting it again on the same data")
        server.kill()
        server = start("server-2.log")
        # It answers already; by READs alone when all records are in memory again.
        while client.json("stats")["server"]["loading"]:
            server.expect_running()
            time.sleep(0.02)
        second = compare(client, server, options.file, "reading every record back once more")
        server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()
    return first, second


def main():
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("file", metavar="FILE", help="records: a Debian package index, TSV or JSON lines")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--transport", default="auto", choices=["auto", "verbs", "shm", "tcp"])
    parser.add_argument("--bin", default="build/release/bin", help="directory of the programs")
    parser.add_argument("--memory", default="512MiB", help="memory of the server")
    parser.add_argument("--address", help="HOST:PORT of the RDMA device to use",
                        default=os.environ.get("RKV_RDMA_ADDRESS", "127.0.0.1") + ":7471")
    options = parser.parse_args()
    if not re.fullmatch(r".+:\d+", options.address):
        options.address += ":7471"

    with tempfile.TemporaryDirectory(prefix="rkv-demo-") as scratch:
        try:
            first, second = demonstrate(options, scratch)
        except (Failed, OSError, subprocess.SubprocessError) as problem:
            print(f"demo: {problem}", file=sys.stderr)
            return 4
    equal = all_equal(first) and all_equal(second)
    print_table(first, second)
    print("\n" + ("every record compared equal, before and after the kill" if equal
                  else "NOT every record was read one-sidedly and compared equal"))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"equal": equal, "loaded": first, "after_restart": second}, out, indent=2)
            out.write("\n")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
