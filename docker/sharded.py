"""Three servers as one store by hash of the key: one is killed, and only its keys fail."""

from machinery import UNEQUAL, Failed
from store import (METRICS_OFFSET, Store, failures_of_benchmark, is_equal, json_values, rows_of_benchmark, say,
                   show_benchmark)

SERVERS = ("server1", "server2", "server3")
VICTIM = "server2"
KEYS_AT_ONCE = 10_000  # of one multi_get, which waits for its deadline where a server is gone
FIRST_PORT = 7471
PORTS_ABOVE = len(SERVERS) - 1  # the first


def value_of(record):
    return record["counter"] if "counter" in record else record.get("value_hex")


class ShardedStore(Store):
    def __init__(self, options, address):
        self.addresses = {name: f"{address}:{options.port + i}" for i, name in enumerate(SERVERS)}
        environment = {}
        for i in range(len(SERVERS)):
            environment[f"RKV_PORT{i + 1}"] = str(options.port + i)
            environment[f"RKV_METRICS_PORT{i + 1}"] = str(options.port + METRICS_OFFSET + i)
        super().__init__(options, address, environment, SERVERS, "loader", "bench")

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
        what = self.workload("workloadb")
        self.compose.tool("bench", "-load", *what)
        rows = rows_of_benchmark(
            self.compose.tool("bench", "-t", *what, "-p", f"operationcount={self.options.operations}"))
        show_benchmark(rows)
        if failures_of_benchmark(rows):
            raise Failed(f"{failures_of_benchmark(rows)} operations of the benchmark failed")

    def demonstrate(self, file):
        say("building the images")
        self.build(SERVERS[0], "loader", "bench")
        say("starting three servers")
        self.start(*SERVERS)
        for name in SERVERS:
            say(f"  {name}  {self.addresses[name]}  healthy")
        loaded = self.load_checked(file)
        records = self.records_of_each()
        say("YCSB's workload b against all three")
        self.benchmark()
        say("waiting until all data is on disk (flush)")
        self.compose.tool("loader", "flush")
        say(f"killing {VICTIM}, then asking for every record")
        self.kill(VICTIM)
        outcome = self.ask_for_all(records)
        say(f"starting {VICTIM} again, then comparing every record")
        self.start_again(VICTIM)
        again = self.verify(file)
        show_table(records, outcome, again)
        complete = (only_its_keys_failed(records, outcome) and is_equal(again)
                    and again["records"] == loaded["records"] == sum(map(len, records.values())))
        say("\n" + (f"only keys of {VICTIM} failed while it was dead; every record compared equal after its restart"
                    if complete else "NOT correct: see the table"))
        return 0 if complete else UNEQUAL

    def how_to_use(self):
        """For --keep: what to type, and where the first status page is."""
        ports = range(self.options.port, self.options.port + len(SERVERS))
        say(f"\nthe cluster is left running; its status page: http://127.0.0.1:{ports[0] + METRICS_OFFSET}/ and the next two"
            f"\n  export {self.settings('RKV_PORT', ports)}"
            f"\n  {' '.join(self.compose.base)} run --rm loader scan --limit 3"
            "\n  ./run cluster --down")


# ---- what is shown ----

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
