#!/usr/bin/env python3
"""Three kvservers in containers on this machine's RDMA device, shown at work: real records loaded
and read back, YCSB's workload b, one server killed - only its keys fail - and started again, every
record compared. All is taken down at the end, whatever that is."""

import argparse
import contextlib
import json
import signal
import sys
import time

sys.dont_write_bytecode = True  # the sources stay as they are

from machinery import (FAILED, PROJECT, SIGNALS, UNEQUAL, USAGE, Compose, Device, Ended, Failed, Unfit,
                       await_healthy, check_docker, docker, end_by_signal, ignore_signals, import_programs,
                       leftovers, states, take_down)

SERVERS = ("server1", "server2", "server3")
VICTIM = "server2"
KEYS_AT_ONCE = 10_000  # of one multi_get, which waits for its deadline where a server is gone
METRICS_OFFSET = 2000  # of the ports for HTTP from those of the servers
HEALTHY_WITHIN_S = 600  # on an emulated, busy processor; the end of a server is seen at once
KILLED_WITHIN_S = 120


def say(text):
    print(text, flush=True)


def json_values(text):
    """The JSON values in a text, one after the other."""
    decoder, position = json.JSONDecoder(), 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return
        value, position = decoder.raw_decode(text, position)
        yield value


def value_of(record):
    return record["counter"] if "counter" in record else record.get("value_hex")


class Cluster:
    def __init__(self, options, device):
        self.options, self.address = options, device.address
        self.addresses = {name: f"{device.address}:{options.port + i}" for i, name in enumerate(SERVERS)}
        environment = {"RKV_ADDRESS": device.address, "RKV_MEMORY": options.memory,
                       "RKV_TIMEOUT": options.timeout}
        for i in range(len(SERVERS)):
            environment[f"RKV_PORT{i + 1}"] = str(options.port + i)
            environment[f"RKV_METRICS_PORT{i + 1}"] = str(options.port + METRICS_OFFSET + i)
        if options.base_image:
            environment["RKV_BASE_IMAGE"] = options.base_image
        if options.programs:
            # The older builder would compile all the same.
            environment.update(RKV_PROGRAMS="rkv-programs", DOCKER_BUILDKIT="1", COMPOSE_DOCKER_CLI_BUILD="1")
        self.compose = Compose(environment)
        self.containers = {}

    # ---- steps ----

    def build(self):
        if self.options.programs:
            import_programs(self.options.programs, "rkv-programs")
        self.compose.run("build", SERVERS[0], "loader", "bench")

    def start(self):
        self.compose.run("up", "-d", "--no-build", *SERVERS)
        self.containers = {name: self.compose.container(name) for name in SERVERS}
        await_healthy(self.containers, HEALTHY_WITHIN_S)
        for name in SERVERS:
            say(f"  {name}  {self.addresses[name]}  healthy")

    def load(self, records):
        self.compose.tool("loader", "load", "-", feed=records)
        return self.verify(records)

    def verify(self, records):
        """Every record of the file, read back one-sidedly and compared."""
        printed = self.compose.tool("loader", "--output", "json", "verify", "-", feed=records,
                                    may_fail=True)
        try:
            return json.loads(printed)
        except ValueError as error:
            raise Failed("the records could not be read back") from error

    def records_of_each(self):
        """{server: {key: value}}, in hexadecimal: what each has by its own account."""
        records = {}
        for name in SERVERS:
            printed = self.compose.tool("loader", "--server", self.addresses[name], "--hex", "dump",
                                        "--format", "jsonl", "-")
            records[name] = {record["key_hex"]: value_of(record) for record in json_values(printed)}
        return records

    def ask_for_all(self, records):
        """{server: [equal, failed, different]} of its keys, all asked for by one client."""
        keys = [key for name in SERVERS for key in records[name]]
        lines = ["mget " + " ".join(keys[i:i + KEYS_AT_ONCE]) + "\n"
                 for i in range(0, len(keys), KEYS_AT_ONCE)]
        printed = self.compose.tool("loader", "--output", "json", "--hex", feed="".join(lines).encode(),
                                    may_fail=True)
        answers = {answer["key_hex"]: answer for some in json_values(printed) for answer in some}
        outcome = {}
        for name in SERVERS:
            failed = sum("error" in answers.get(key, ()) for key in records[name])
            equal = sum(value_of(answers.get(key, {})) == value for key, value in records[name].items())
            outcome[name] = [equal, failed, len(records[name]) - equal - failed]
        return outcome

    def benchmark(self):
        """YCSB's text as {(section, name): value}, of the operations alone."""
        options = self.options
        what = ["-P", "workloadb", "-p", f"recordcount={options.recordcount}",
                "-threads", str(options.threads)]
        self.compose.tool("bench", "-load", *what)
        printed = self.compose.tool("bench", "-t", *what, "-p", f"operationcount={options.operations}")
        rows = (line.split(", ") for line in printed.splitlines() if line.startswith("["))
        return {(row[0].strip("[]"), row[1]): row[2] for row in rows if len(row) == 3}

    def kill(self, name):
        docker("kill", "--signal", "KILL", self.containers[name])
        end = time.monotonic() + KILLED_WITHIN_S
        while [status for status, _, _ in states([self.containers[name]])] != ["exited"]:
            if time.monotonic() > end:
                raise Failed(f"{name} goes on after SIGKILL")
            time.sleep(0.1)

    def start_again(self, name):
        docker("start", self.containers[name])
        await_healthy({name: self.containers[name]}, HEALTHY_WITHIN_S)


# ---- what is shown ----

def show_benchmark(rows):
    def of(section, name):
        return float(rows.get((section, name), "nan"))
    say(f"  {of('OVERALL', 'Throughput(ops/sec)'):,.0f} operations/s; READ p50 "
        f"{of('READ', '50thPercentileLatency(us)'):,.0f} us, p99 {of('READ', '99thPercentileLatency(us)'):,.0f} us; "
        f"UPDATE p50 {of('UPDATE', '50thPercentileLatency(us)'):,.0f} us")
    failed = sum(int(value) for (_, name), value in rows.items()
                 if name.startswith("Return=") and name != "Return=OK")
    if failed:
        raise Failed(f"{failed} operations of the benchmark failed")


def show_table(records, outcome, again):
    say(f"\n{'':28}" + "".join(f"{name:>12}" for name in (*SERVERS, "all")))
    for title, values in (
            ("records", [len(records[name]) for name in SERVERS]),
            (f"{VICTIM} dead: equal", [outcome[name][0] for name in SERVERS]),
            ("  failed", [outcome[name][1] for name in SERVERS]),
            ("  different or missing", [outcome[name][2] for name in SERVERS])):
        say(f"{title:28}" + "".join(f"{value:>12,}" for value in (*values, sum(values))))
    for title, value in (
            ("started again: equal", again["records"] - again["missing"] - again["mismatches"]),
            ("  different or missing", again["missing"] + again["mismatches"])):
        say(f"{title:64}{value:>12,}")


def only_its_keys_failed(records, outcome):
    return all(outcome[name] == ([0, len(records[name]), 0] if name == VICTIM
                                 else [len(records[name]), 0, 0]) for name in SERVERS)


def is_equal(result):
    return result["records"] > 0 and result["missing"] == 0 and result["mismatches"] == 0


def demonstrate(cluster, file):
    say("building the images")
    cluster.build()
    say("starting three servers")
    cluster.start()
    say("loading the records, reading each back")
    loaded = cluster.load(file)
    if not is_equal(loaded):
        raise Failed(f"after loading {loaded['missing']} records are missing, {loaded['mismatches']} differ")
    say(f"  {loaded['records']:,} records, {loaded['bytes']:,} bytes, {loaded['one_sided_gets']:,} of "
        f"{loaded['gets']:,} GETs one-sided")
    records = cluster.records_of_each()
    say("YCSB's workload b against all three")
    show_benchmark(cluster.benchmark())
    say("waiting until all data is on disk (flush)")
    cluster.compose.tool("loader", "flush")
    say(f"killing {VICTIM}, then asking for every record")
    cluster.kill(VICTIM)
    outcome = cluster.ask_for_all(records)
    say(f"starting {VICTIM} again, then comparing every record")
    cluster.start_again(VICTIM)
    again = cluster.verify(file)
    show_table(records, outcome, again)
    complete = (only_its_keys_failed(records, outcome) and is_equal(again)
                and again["records"] == loaded["records"] == sum(map(len, records.values())))
    say("\n" + (f"only keys of {VICTIM} failed while it was dead; every record compared equal after its restart"
                if complete else "NOT correct: see the table"))
    return 0 if complete else UNEQUAL


# ---- the program ----

class Parser(argparse.ArgumentParser):
    """A mistake is one sentence."""

    def error(self, message):
        self.exit(USAGE, f"cluster: {message}; see ./run cluster --help\n")


def parse_options():
    parser = Parser(prog="./run cluster", description=__doc__)
    parser.add_argument("file", metavar="FILE", nargs="?",
                        help="records: a Debian package index, TSV or JSON lines; default: the index that apt keeps here")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end")
    parser.add_argument("--down", action="store_true", help="only take down what --keep has left")
    parser.add_argument("--port", type=int, default=7471, help="port of the first server; the others have the next two, metrics and status pages 2000 higher")
    parser.add_argument("--memory", default="512MiB", help="memory of each server")
    parser.add_argument("--timeout", default="5s", help="timeout of a client's operation")
    parser.add_argument("--recordcount", type=int, default=10_000, help="records of the benchmark")
    parser.add_argument("--operations", type=int, default=50_000, help="operations of the benchmark")
    parser.add_argument("--threads", type=int, default=2, help="threads of the benchmark")
    parser.add_argument("--base-image", metavar="IMAGE", help="image of Debian 12 to build on (default: debian:12-slim)")
    parser.add_argument("--programs", metavar="DIR",
                        help="directory of built programs, such as build/release/bin; default: they are "
                             "compiled in a container")
    options = parser.parse_args()
    port_max = 65535 - METRICS_OFFSET - len(SERVERS) + 1
    if not 1 <= options.port <= port_max:
        parser.error(f"--port needs 1 to {port_max}")
    if options.file is None and not options.down:
        parser.error("FILE with records is missing")
    for name in "recordcount", "operations", "threads":
        if getattr(options, name) < 1:
            parser.error(f"--{name} needs 1 or more")
    return options


def read_records(path):
    try:
        with open(path, "rb") as records:
            return records.read()
    except OSError as error:
        print(f"cluster: {path} cannot be read: {error.strerror}", file=sys.stderr)
        sys.exit(USAGE)


def keep(cluster):
    ports = range(cluster.options.port, cluster.options.port + len(SERVERS))
    settings = " ".join(f"RKV_PORT{i + 1}={port}" for i, port in enumerate(ports))
    say(f"\nthe cluster is left running; its status page: http://127.0.0.1:{ports[0] + METRICS_OFFSET}/ and the next two"
        f"\n  export RKV_ADDRESS={cluster.address} {settings}"
        f"\n  {' '.join(cluster.compose.base)} run --rm loader scan --limit 3"
        "\n  ./run cluster --down")


def run(options):
    if options.down:
        check_docker()
        take_down()
        return 0
    records = read_records(options.file)
    check_docker()
    if leftovers():
        raise Unfit(f"containers of {PROJECT} exist already: `./run cluster --down` removes them")
    device = Device()
    with contextlib.ExitStack() as at_end:  # from the last to the first, each whatever became of the others
        at_end.callback(device.remove)
        at_end.callback(take_down)
        at_end.callback(ignore_signals)
        device.find_or_make()
        say(f"RDMA device {device.name}, address {device.address}" + (" (created for this run)" if device.made else ""))
        cluster = Cluster(options, device)
        status = demonstrate(cluster, records)
        if options.keep:
            keep(cluster)
            at_end.pop_all()
    return status


def complain(problem):
    """In the order in which things went wrong: the taking down comes last."""
    if isinstance(problem.__context__, (Failed, Ended)):
        complain(problem.__context__)
    text = "ended by a signal" if isinstance(problem, Ended) else problem
    print(f"cluster: {text}", file=sys.stderr)


def main():
    options = parse_options()
    for number in SIGNALS:
        signal.signal(number, end_by_signal)
    try:
        return run(options)
    except Failed as problem:
        complain(problem)
        return problem.exit_status
    except (OSError, ValueError, KeyError) as problem:
        print(f"cluster: {type(problem).__name__}: {problem}", file=sys.stderr)
        return FAILED
    except Ended as ended:
        complain(ended)
        return 128 + ended.args[0]


if __name__ == "__main__":
    sys.exit(main())
