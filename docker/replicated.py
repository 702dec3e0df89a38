"""A replicated group of three servers, and an etcd: the primary is killed in the middle of writes, and
nothing that was acknowledged is missing."""

import json
import re
import time

from beside import Benchmark, Writer, await_that
from machinery import UNEQUAL, Failed, docker
from store import (HEALTHY_WITHIN_S, METRICS_OFFSET, Store, failures_of_benchmark, json_values, rows_of_benchmark,
                   say, show_benchmark)

REPLICAS = ("replica1", "replica2", "replica3")
CONFIGURATION = "rkv/groups/docker/configuration"  # in etcd; compose.yml has the group's name
FIRST_PORT = 7481
PORTS_ABOVE = 2 * len(REPLICAS) - 1  # the first: each replica has one for clients and one for replicas
WRITES = 50  # of the writer, before and after the kill
KEY_OF_BENCHMARK = re.compile(r"user\d+")
LOOK_EVERY_S = 0.5  # at etcd, by a command in its container, which an emulated processor feels


class ReplicatedGroup(Store):
    def __init__(self, options, address):
        environment = {"RKV_ETCD_PORT": str(options.etcd_port), "RKV_ETCD_PEER_PORT": str(options.etcd_port + 1)}
        for i, _ in enumerate(REPLICAS):
            environment[f"RKV_GROUP_PORT{i + 1}"] = str(options.port + 2 * i)
            environment[f"RKV_GROUP_METRICS_PORT{i + 1}"] = str(options.port + METRICS_OFFSET + 2 * i)
        super().__init__(options, address, environment, REPLICAS, "group-loader", "group-bench")

    def configuration(self):
        """The group's configuration in etcd; None before it is founded."""
        printed = docker("exec", self.containers["etcd"], "etcdctl", "get", "--print-value-only", CONFIGURATION)
        return json.loads(printed) if printed.strip() else None

    def in_sync(self):
        configuration = self.configuration()
        return [member["name"] for member in configuration["members"]
                if int(member["epoch"], 16) != 0] if configuration else []

    def await_all_in_sync(self):
        await_that(lambda: len(self.in_sync()) == len(REPLICAS), HEALTHY_WITHIN_S,
                   f"not all of {', '.join(REPLICAS)} are in sync", LOOK_EVERY_S)

    def primary(self):
        configuration = self.configuration()
        return configuration["primary"] if configuration else None

    def await_other_primary(self, old):
        await_that(lambda: self.primary() not in (None, old), HEALTHY_WITHIN_S, f"nobody took over from {old}",
                   LOOK_EVERY_S)
        return self.primary()

    def end_benchmark(self):
        """It shows its results when it is told to end."""
        docker("kill", "--signal", "INT", self.compose.container(self.bench))

    def records_of_benchmark(self):
        """How many there are; their values were drawn by kvbench. Other records may begin alike: Debian
        has packages named userv and users-guide."""
        printed = self.compose.tool(self.loader, "--output", "json", "scan", "--prefix", "user", "--keys-only")
        return sum(KEY_OF_BENCHMARK.fullmatch(record.get("key", "")) is not None for record in json_values(printed))

    def compare(self, file, writer):
        """What was acknowledged, [(records, different or missing)], read through the primary there is."""
        results = [self.verify(file), self.verify(writer.records())]
        wanted = self.options.recordcount
        return [(result["records"], result["missing"] + result["mismatches"]) for result in results] + [
            (wanted, wanted - self.records_of_benchmark())]

    def kill_the_primary(self):
        """While a writer and a benchmark are at work. (writer, rows of the benchmark, seconds without
        service, the dead, the new primary)"""
        what = self.workload("workloada")
        with self.compose.beside(self.loader, "--output", "json") as writing, \
             self.compose.beside(self.bench, "-t", *what, "-s", "-p", "status.interval=1",
                                 "-p", "operationcount=1000000000") as running:
            writer, benchmark = Writer(writing), Benchmark(running)
            writer.await_more(WRITES, HEALTHY_WITHIN_S)
            benchmark.await_operations(self.options.operations // 2, HEALTHY_WITHIN_S)
            dead = self.primary()
            say(f"killing {dead}, the primary")
            killed = time.monotonic()
            self.kill(dead)
            primary = self.await_other_primary(dead)
            say(f"  {primary} took over")
            writer.await_more(WRITES, HEALTHY_WITHIN_S)
            benchmark.await_operations(self.options.operations, HEALTHY_WITHIN_S)
            writer.stop()
            self.end_benchmark()
            rows = rows_of_benchmark(benchmark.output())
        if not rows:
            raise Failed("the benchmark ended without results")
        show_benchmark(rows)
        return writer, rows, writer.longest_wait_after(killed), dead, primary

    def demonstrate(self, file):
        say("building the images")
        self.build("server1", "loader", "bench", "etcd")
        say("starting etcd and three replicas")
        self.start("etcd")
        self.start(*REPLICAS)
        self.await_all_in_sync()
        say(f"  {', '.join(REPLICAS)} are in sync, {self.primary()} is the primary")
        loaded = self.load_checked(file)
        say("YCSB's workload a, and beside it a writer that notes what is acknowledged")
        self.compose.tool(self.bench, "-load", *self.workload("workloada"))
        writer, rows, without_service_s, dead, primary = self.kill_the_primary()
        say("comparing every record that was acknowledged")
        after = self.compare(file, writer)
        say(f"starting {dead} again, then comparing again")
        self.start_again(dead)
        self.await_all_in_sync()
        again = self.compare(file, writer)
        show_table(after, again)
        say(f"\nnobody served for {without_service_s:.1f} s: that long the writer waited for an answer, {dead} dead, "
            f"until {primary} gave it")
        lost = failures_of_benchmark(rows) + len(writer.failures)
        say(f"writes and reads that failed, and so acknowledged nothing: {lost}")
        complete = (all(records > 0 and wrong == 0 for records, wrong in after + again)
                    and after[0][0] == loaded["records"])
        say("\n" + (f"every acknowledged record compared equal, after the death of {dead} and after its return"
                    if complete else "NOT correct: see the table"))
        return 0 if complete else UNEQUAL

    def how_to_use(self):
        """For --keep: what to type, and where the first status page is."""
        ports = [self.options.port + 2 * i for i, _ in enumerate(REPLICAS)]
        say(f"\nthe group is left running; status pages: http://127.0.0.1:{ports[0] + METRICS_OFFSET}/, and 2 and 4 ports above"
            f"\n  export {self.settings('RKV_GROUP_PORT', ports)}"
            f"\n  {' '.join(self.compose.base)} run --rm group-loader scan --limit 3"
            "\n  ./run cluster --down")


def show_table(after, again):
    say(f"\n{'':28}{'records':>12}{'primary dead':>24}{'all three again':>24}")
    for title, (records, wrong), (_, wrong_again) in zip(
            ("loaded", "of the writer", "of the benchmark (keys)"), after, again, strict=True):
        say(f"{title:28}{records:>12,}" + "".join(f"{text:>24}" for text in (outcome(wrong), outcome(wrong_again))))


def outcome(wrong):
    return "all equal" if wrong == 0 else f"{wrong:,} different or missing"
