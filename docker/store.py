"""Servers in containers as one store: what the sharded store and the replicated group share."""

import json
import time

from machinery import Compose, Failed, await_healthy, docker, import_programs, states

METRICS_OFFSET = 2000  # of the ports for HTTP from those of the servers
HEALTHY_WITHIN_S = 600  # on an emulated, busy processor; the end of a server is seen at once
KILLED_WITHIN_S = 120
# What compose.yml takes. Each sets all of it, as the caller's environment may have what is for the other one.
TRANSPORTS = {
    "verbs": {"RKV_TRANSPORT": "verbs", "RKV_DEVICE": "/dev/infiniband", "RKV_MEMLOCK": "-1"},
    "tcp": {"RKV_TRANSPORT": "tcp", "RKV_DEVICE": "/dev/null", "RKV_MEMLOCK": "65536"},
}


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


def is_equal(result):
    return result["records"] > 0 and result["missing"] == 0 and result["mismatches"] == 0


def rows_of_benchmark(text):
    """YCSB's text as {(section, name): value}, of the operations alone."""
    rows = (line.split(", ") for line in text.splitlines() if line.startswith("["))
    return {(row[0].strip("[]"), row[1]): row[2] for row in rows if len(row) == 3}


def failures_of_benchmark(rows):
    return sum(int(value) for (_, name), value in rows.items()
               if name.startswith("Return=") and name != "Return=OK")


def show_benchmark(rows):
    def of(section, name):
        return float(rows.get((section, name), "nan"))
    say(f"  {of('OVERALL', 'Throughput(ops/sec)'):,.0f} operations/s; READ p50 "
        f"{of('READ', '50thPercentileLatency(us)'):,.0f} us, p99 {of('READ', '99thPercentileLatency(us)'):,.0f} us; "
        f"UPDATE p50 {of('UPDATE', '50thPercentileLatency(us)'):,.0f} us")


class Store:
    """`servers` are services of compose.yml, `loader` and `bench` those of their clients."""

    def __init__(self, options, address, environment, servers, loader, bench):
        self.options, self.servers = options, servers
        self.loader, self.bench = loader, bench
        self.reached_by = {"RKV_ADDRESS": address, **TRANSPORTS[options.transport]}
        environment = {**self.reached_by, "RKV_MEMORY": options.memory, "RKV_TIMEOUT": options.timeout,
                       **environment}
        if options.base_image:
            environment["RKV_BASE_IMAGE"] = options.base_image
        if options.programs:
            # The older builder would compile all the same.
            environment.update(RKV_PROGRAMS="rkv-programs", DOCKER_BUILDKIT="1", COMPOSE_DOCKER_CLI_BUILD="1")
        self.compose = Compose(environment)
        self.containers = {}

    def build(self, *services):
        """The images; each of these services builds one."""
        if self.options.programs:
            import_programs(self.options.programs, "rkv-programs")
        self.compose.run("build", *services)

    def start(self, *services):
        """Makes and starts containers, and waits until they are healthy."""
        self.compose.run("up", "-d", "--no-build", *services)
        started = {name: self.compose.container(name) for name in services}
        self.containers.update(started)
        await_healthy(started, HEALTHY_WITHIN_S)

    def load(self, records):
        self.compose.tool(self.loader, "load", "-", feed=records)
        return self.verify(records)

    def verify(self, records):
        """Every record of the file, read back and compared."""
        printed = self.compose.tool(self.loader, "--output", "json", "verify", "-", feed=records, may_fail=True)
        try:
            return json.loads(printed)
        except ValueError as error:
            raise Failed("the records could not be read back") from error

    def load_checked(self, records):
        say("loading the records, reading each back")
        loaded = self.load(records)
        if not is_equal(loaded):
            raise Failed(f"after loading {loaded['missing']} records are missing, {loaded['mismatches']} differ")
        say(f"  {loaded['records']:,} records, {loaded['bytes']:,} bytes, {loaded['one_sided_gets']:,} of "
            f"{loaded['gets']:,} GETs by READs alone")
        return loaded

    def settings(self, name, ports):
        """What compose.yml by hand takes to reach these servers, whose ports are NAME1, NAME2, ..."""
        settings = {**self.reached_by, **{f"{name}{i + 1}": port for i, port in enumerate(ports)}}
        return " ".join(f"{variable}={value}" for variable, value in settings.items())

    def workload(self, name):
        """kvbench's options for one of YCSB's workloads."""
        return ["-P", name, "-p", f"recordcount={self.options.recordcount}", "-threads", str(self.options.threads)]

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
