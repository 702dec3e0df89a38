#!/usr/bin/env python3
"""`./run bench group`: what a replicated group costs, against a server without a group. PUTs with
0, 1 and 2 backups at each durability; GETs and their READs; the memory of a backup; how fast a
backup that was away catches up; the time without service after SIGKILL of the primary. The group's
replicas, a real etcd and the client are processes of this host; the data must be on a real disk."""

import contextlib
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from common import Failed, Misuse, kvserver, program, progress, run_benchmark, wait_for
from durability import empty_directory, find_disk

LEVELS = ("memory", "wal", "sync")
WORKLOADS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kvbench", "workloads")
FLAGS = {"--puts": (5_000, "of each kind, a repetition; a tenth of them at sync"),
         "--gets": (300_000, "of each kind, a repetition"),
         "--keys": (100_000, "records of 100 bytes that GETs find"),
         "--records": (200_000, "of 100 bytes, that a backup misses while it is away"),
         "--fail-overs": (50, "times that the primary is killed"),
         "--anywhere": (0, "1: not on a disk either, where the figures mean nothing"),
         "--replicate-over": ("auto", "of the group's servers: auto or tcp"),
         "--scratch": ("", "directory for the data; default: beside the programs"),
         "--quick": (False, "a tenth of everything, once, and 5 fail-overs")}
CONNECTED, COPY, IN_SYNC = (re.compile(rf"^(\S+ \S+) info: .*{words}$", re.M) for words in (
    "has connected", "gets a copy of the database", r"the group in term \d+: [^(]*\(primary\)[^(]*"))
STEPS = {"--steps": ("put,get,memory,catch-up,fail-over", "which of these")}


def measure(options, figures):
    known = {"put": measure_put, "get": measure_get, "memory": measure_memory,
             "catch-up": measure_catch_up, "fail-over": measure_fail_over}
    steps = options.steps.split(",")
    for step in steps:
        if step not in known:
            raise Misuse(f"--steps are some of {', '.join(known)}, not {step}")
    if options.replicate_over not in ("auto", "tcp"):
        raise Misuse(f"--replicate-over is auto or tcp, not {options.replicate_over}")
    if options.quick:
        options.repetitions, options.fail_overs = 1, min(options.fail_overs, 5)
        for size in ("puts", "gets", "keys", "records"):
            setattr(options, size, max(100, getattr(options, size) // 10))
    find_disk(options)
    for tool in ("etcd", "etcdctl"):
        if not shutil.which(tool):
            raise Failed(f"{tool} is not installed (./run install-deps)")
    with etcd(options) as endpoint:
        for step in steps:
            known[step](options, figures, endpoint)


# ---- the processes

@contextlib.contextmanager
def etcd(options):
    """An etcd of one server; its HOST:PORT."""
    endpoint, peers = (address_of(options, 90 + n) for n in (0, 1))
    with empty_directory(options) as data, tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            ["etcd", "--data-dir", data, "--listen-client-urls", f"http://{endpoint}",
             "--advertise-client-urls", f"http://{endpoint}", "--listen-peer-urls",
             f"http://{peers}", "--initial-advertise-peer-urls", f"http://{peers}",
             "--initial-cluster", f"default=http://{peers}"], stdout=log, stderr=log)
        try:
            wait_for(lambda: etcdctl(endpoint, "endpoint", "health") is not None, "etcd", server)
            yield endpoint
        finally:
            server.kill()
            server.wait()


def etcdctl(endpoint, *arguments):
    """What it prints; None: it failed."""
    done = subprocess.run(["etcdctl", f"--endpoints={endpoint}", *arguments], check=False,
                          capture_output=True, text=True, env={**os.environ, "ETCDCTL_API": "3"})
    return done.stdout if done.returncode == 0 else None


def address_of(options, above):
    host, _, port = options.address.rpartition(":")
    return f"{host}:{int(port) + above}"


class Group:
    """Replicas n0, n1, ... of a group, each a kvserver. They end with the block that encloses it."""

    made = 0

    def __init__(self, options, endpoint, replicas, memory="512MiB"):
        Group.made += 1
        self.options, self.endpoint, self.memory = options, endpoint, memory
        self.name = f"bench-{Group.made}"
        first = 10 + 10 * replicas
        self.addresses = [address_of(options, first + 2 * n) for n in range(replicas)]
        self.servers = [None] * replicas
        self.data = []
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.data = [stack.enter_context(empty_directory(self.options)) for _ in self.addresses]
            self.stack = stack
            for number, server in enumerate(self.servers):
                self.start(number, wait=number == 0)
            self.wait_for_in_sync(len(self.servers))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        for server in self.servers:  # nobody takes over
            server.kill()
        self.stack.close()

    @property
    def address(self):
        return ",".join(self.addresses)

    def start(self, number, wait=False):
        extra = ["--etcd", self.endpoint, "--group", self.name, "--name", f"n{number}",
                 "--data-dir", self.data[number],
                 "--replicate-over", self.options.replicate_over]
        if number == 0:
            extra.append("--found-group")
        self.servers[number] = self.stack.enter_context(kvserver(
            self.options, self.memory, extra, self.addresses[number], wait))

    def kill(self, number):
        self.servers[number].kill()
        self.servers[number].wait()

    def configuration(self):
        text = etcdctl(self.endpoint, "get", "--print-value-only",
                       f"rkv/groups/{self.name}/configuration")
        return json.loads(text) if text else {"members": [], "primary": None}

    def primary(self):
        return int(self.configuration()["primary"][1:])

    def wait_for_in_sync(self, count):
        alive = next(server for server in self.servers if server and server.poll() is None)
        wait_for(lambda: sum(int(member["epoch"], 16) != 0 for member in self.configuration()["members"])
                 == count, f"{count} replicas in sync", alive)


@contextlib.contextmanager
def single(options, memory="512MiB"):
    """A server without a group; its address."""
    with empty_directory(options) as data:
        with kvserver(options, memory, ["--data-dir", data]) as server:
            yield options.address
            server.kill()  # nobody reads what is not on its disk yet


def record(figures, what, **one):
    figures.runs.append({"what": what, **one})


def kvbench(options, server, *arguments):
    """A run of kvbench at --server; what it says by --output json."""
    done = subprocess.run(
        [os.path.join(options.bin, "kvbench"), "--server", server, "--transport", options.transport,
         "--poll", options.poll, "--output", "json", "-p", f"recordcount={options.keys}", "-p",
         "fieldcount=1", *arguments], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"kvbench ended with status {done.returncode}")
    return json.loads(done.stdout)


# ---- PUTs

def measure_put(options, figures, endpoint):
    with contextlib.ExitStack() as stack:
        targets = {"alone": stack.enter_context(single(options))}
        for backups in range(3):
            group = stack.enter_context(Group(options, endpoint, backups + 1))
            targets[f"{backups} backups"] = group.address
        for server in targets.values():
            program(options, "bench_put", "load", server=server, depth=32)
        for repetition in range(options.repetitions):
            for level in LEVELS:
                compare_puts(options, figures, targets, level)
            progress(f"put {repetition + 1} of {options.repetitions}")


def compare_puts(options, figures, targets, level):
    puts = max(32, options.puts // (10 if level == "sync" else 1))
    one, many = {}, {}
    for target, server in targets.items():
        one[target] = program(options, "bench_put", "put", server=server, durability=level,
                              puts=puts)["p50_us"]
        many[target] = program(options, "bench_put", "overwrite", server=server, durability=level,
                               puts=puts * 8, depth=32)["puts_per_s"]
    record(figures, "put", durability=level, p50_us=one, puts_per_s=many)
    for target in targets:
        figures.add(f"PUT ({level}) p50 (us), {target}", one[target])
        figures.add(f"PUTs ({level})/s, one at a time, {target}", 1e6 / one[target])
        figures.add(f"PUTs ({level})/s, 32 in flight, {target}", many[target])
    for target in list(targets)[1:]:
        figures.add(f"PUT ({level}) p50, {target} / alone", one[target] / one["alone"])
        figures.add(f"PUTs ({level})/s, 32 in flight, {target} / alone",
                    many[target] / many["alone"])


# ---- GETs

def measure_get(options, figures, endpoint):
    with single(options) as alone, Group(options, endpoint, 3) as group:
        targets = {"alone": alone, "2 backups": group.address}
        for server in targets.values():
            kvbench(options, server, "-load", "-P", os.path.join(WORKLOADS, "workloadc"),
                    "--in-flight", "32")
            program(options, "bench_get", "load", server=server, keys=options.keys)
        for repetition in range(options.repetitions):
            compare_gets(options, figures, targets)
            progress(f"get {repetition + 1} of {options.repetitions}")


def compare_gets(options, figures, targets):
    phases = {"one at a time": "warm", "32 in flight": "pipelined"}
    for words, phase in phases.items():
        of = {target: program(options, "bench_get", phase, server=server, keys=options.keys,
                              gets=options.gets, depth=32) for target, server in targets.items()}
        rate = {target: one.get("gets_per_s") or 1e6 / one["p50_us"] for target, one in of.items()}
        record(figures, "get", phase=phase, **of)
        for target, one in of.items():
            figures.add(f"GETs/s, {words}, {target}", rate[target])
            figures.add(f"READs per warm GET, {words}, {target}", one["reads_per_get"])
        figures.add(f"GETs/s, {words}, 2 backups / alone", rate["2 backups"] / rate["alone"])
        figures.add(f"READs per warm GET, {words}, 2 backups / alone",
                    of["2 backups"]["reads_per_get"] / of["alone"]["reads_per_get"], 1.01)
    of = {target: kvbench(options, server, "-P", os.path.join(WORKLOADS, "workloadb"), "-p",
                          f"operationcount={options.gets}") for target, server in targets.items()}
    record(figures, "get", phase="workload b", **of)
    for target, one in of.items():
        figures.add(f"READs per GET, YCSB-B from an empty cache, {target}",
                    one["client"]["reads_per_get"])
        figures.add(f"operations/s, YCSB-B, {target}", one["overall"]["throughput_per_s"])
    figures.add("operations/s, YCSB-B, 2 backups / alone", of["2 backups"]["overall"]
                ["throughput_per_s"] / of["alone"]["overall"]["throughput_per_s"])


# ---- memory

def measure_memory(options, figures, endpoint):
    """Of a backup with a million bytes, and then with `--keys` thousand."""
    with Group(options, endpoint, 2) as group:
        for words, records, value_bytes in (("10^4 records of 100 B", 10_000, 100),
                                            (f"{options.keys} records of 1,000 B", options.keys, 1_000)):
            program(options, "bench_put", "load", server=group.address, depth=32, keys=records,
                    value_bytes=value_bytes)
            for role, number in (("primary", group.primary()), ("backup", 1 - group.primary())):
                used = resident_mib(group.servers[number].pid)
                record(figures, "memory", role=role, records=words, **used)
                figures.add(f"resident memory (MiB) of a {role}, {words}", used["VmRSS"])
                figures.add(f"the same without pages of files, {role}, {words}",
                            used["RssAnon"] + used["RssShmem"], 128 if role == "backup" else None)


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as text:
        found = re.findall(r"^(VmRSS|RssAnon|RssFile|RssShmem):\s+(\d+) kB", text.read(), re.M)
    return {name: int(kib) / 1024 for name, kib in found}


# ---- a backup that was away

def measure_catch_up(options, figures, endpoint):
    for repetition in range(options.repetitions):
        for value_bytes in (100, 1_000):
            records = options.records if value_bytes == 100 else options.records // 5
            for way in ("stream", "copy"):
                one = catch_up(options, endpoint, way, records, value_bytes)
                record(figures, "catch up", way=way, value_bytes=value_bytes, **one)
                words = f"by {way}, values of {value_bytes} B"
                figures.add(f"records/s, {words}", records / one["seconds"])
                figures.add(f"MB/s of keys and values, {words}",
                            records * (16 + value_bytes) / one["seconds"] / 1e6)
        progress(f"catch-up {repetition + 1} of {options.repetitions}")


def catch_up(options, endpoint, way, records, value_bytes):
    """A backup misses so many records. The time from its connection, or from the beginning of the
    copy, until it is in sync, by the primary's log."""
    with Group(options, endpoint, 2) as group:
        primary = group.primary()
        backup = 1 - primary
        group.kill(backup)
        group.wait_for_in_sync(1)
        program(options, "bench_put", "load", server=group.address, depth=32, keys=records,
                value_bytes=value_bytes)
        if way == "copy":  # after a start there is no log in memory that the backup could get
            group.servers[primary].terminate()
            group.servers[primary].wait()
            group.start(primary, wait=True)
        server = group.servers[primary]
        known = len(server.log_text())
        group.start(backup)
        wait_for(lambda: IN_SYNC.search(server.log_text(), known), "a backup in sync", server)
        log = server.log_text()
        copied, in_sync = COPY.search(log, known), IN_SYNC.search(log, known)
        if bool(copied) != (way == "copy"):
            raise Failed(f"the backup was expected to catch up by {way}, and did not")
        began = copied or CONNECTED.search(log, known)
        return {"seconds": time_of(in_sync) - time_of(began), "records": records}


def time_of(line):
    return datetime.datetime.strptime(line.group(1), "%Y-%m-%d %H:%M:%S.%f").timestamp()


# ---- the primary dies

def measure_fail_over(options, figures, endpoint):
    with Group(options, endpoint, 3) as group:
        for done in range(options.fail_overs):
            primary = group.primary()
            one = program(options, "bench_group", "failover", server=group.address,
                          pid=group.servers[primary].pid)
            record(figures, "fail-over", **one)
            group.servers[primary].wait()
            figures.add("time without service after SIGKILL of the primary (s)",
                        one["put"]["seconds"], 1.5)
            group.wait_for_in_sync(2)
            group.start(primary)
            group.wait_for_in_sync(3)
            progress(f"fail-over {done + 1} of {options.fail_overs}:"
                     f" {one['put']['seconds']:.2f} s")
        longest = max(run["put"]["seconds"] for run in figures.runs if run["what"] == "fail-over")
        figures.add("the longest of them (s)", longest, 3)


def describe(options):
    return f"data on {options.file_system}, {os.cpu_count()} cores, all replicas on this host"


if __name__ == "__main__":
    sys.exit(run_benchmark("group", measure, describe, {**FLAGS, **STEPS}))
