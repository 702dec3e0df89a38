#!/usr/bin/env python3
"""`./run bench model`: what 1 to 64 servers and 1 to 4,096 clients would do, computed from costs that
were measured on this machine and from an adapter's published limits. A prediction, not a
measurement: README.md has the assumptions and how far they were checked."""

import argparse
import dataclasses
import json
import os
import sys

SERVERS = (1, 2, 4, 8, 16, 32, 64)
CLIENTS = (1, 4, 16, 64, 256, 1024, 4096)
# Headers of RoCE v2 with IPv4, frame and gaps of Ethernet: READ request; each packet of a response.
REQUEST_BYTES = 14 + 20 + 8 + 12 + 16 + 4 + 4 + 20
RESPONSE_BYTES = 14 + 20 + 8 + 12 + 4 + 4 + 4 + 20
MTU = 4096


class Wrong(Exception):
    """A wrong option; the text is one sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Costs:
    """Of the store: measured."""
    gets_per_s: float = 760_341  # of one client thread, when a READ is a copy
    puts_per_s: float = 99_000  # that one worker takes
    record_bytes: int = 160  # READ for a value of 100 bytes
    group_bytes: int = 256  # READ before it where nothing is cached


@dataclasses.dataclass(frozen=True)
class Adapter:
    """Of the network: published."""
    messages_per_s: float = 215e6
    gbit_per_s: float = 200
    round_trip_us: float = 2.0
    half_rate_connections: int = 5000

    def reads_per_s(self, connections):
        """State of connections that is not in the adapter's cache is fetched from memory."""
        return self.messages_per_s / (1 + connections / self.half_rate_connections)


@dataclasses.dataclass(frozen=True)
class Load:
    in_flight: int = 1  # GETs of one client
    cold: bool = False
    put_share: float = 0.0
    workers: int = 1  # of a server
    clients_per_host: int = 16
    hottest_key: float = 0.0  # its share of the operations


def wire_bytes(length):
    """Of a READ's response."""
    return length + RESPONSE_BYTES * max(1, -(-length // MTU))


def predict(servers, clients, costs, adapter, load):
    """(operations/s, what limits them)."""
    reads = 2 if load.cold else 1
    read_bytes = [costs.record_bytes] + ([costs.group_bytes] if load.cold else [])
    gets, puts = 1 - load.put_share, load.put_share
    # A client: its processor, or the round trips of what it has in flight.
    processor_us = 1e6 / costs.gets_per_s
    latency_us = reads * adapter.round_trip_us + processor_us
    # A server: the one with the hottest key has more than its part.
    hottest = load.hottest_key + (1 - load.hottest_key) / servers
    messages = gets * reads + 2 * puts
    out_bytes = gets * sum(wire_bytes(length) for length in read_bytes) + puts * RESPONSE_BYTES
    bytes_per_s = adapter.gbit_per_s * 1e9 / 8
    hosts = -(-clients // load.clients_per_host)
    limits = {
        "clients' processors": clients * 1e6 / processor_us,
        "round trips": clients * load.in_flight * 1e6 / latency_us,
        "servers' messages": adapter.reads_per_s(clients) / messages / hottest,
        "servers' bandwidth": bytes_per_s / out_bytes / hottest,
        "clients' messages": hosts * adapter.reads_per_s(
            min(clients, load.clients_per_host) * servers) / messages,
        "clients' bandwidth": hosts * bytes_per_s / out_bytes,
    }
    if puts:
        limits["servers' workers"] = load.workers * costs.puts_per_s / puts / hottest
    which = min(limits, key=limits.get)
    return limits[which], which


def measured_costs(file):
    """From the JSON of `./run bench get --transport shm`; and what else it says, to compare with."""
    try:
        with open(file, encoding="utf-8") as text:
            figures = {one["name"]: one["figure"] for one in json.load(text)["figures"]}
        one = figures["GETs/s, 1 client thread(s), 100 B"]
        several = {int(name.split()[1]): figure for name, figure in figures.items()
                   if name.startswith("GETs/s, ") and name.endswith("thread(s), 100 B")}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise Wrong(f"--costs needs the JSON of ./run bench get --transport shm --json, "
                    f"not {file} ({problem!r})") from problem
    return Costs(gets_per_s=one), several


def check(costs, several):
    """Rows (threads, predicted, measured): no network, so that only the processors limit."""
    here = Adapter(messages_per_s=float("inf"), gbit_per_s=float("inf"), round_trip_us=0)
    return [(threads, predict(1, threads, costs, here, Load())[0], rate)
            for threads, rate in sorted(several.items()) if threads > 1]


def table(costs, adapter, load):
    return [{"clients": clients, "servers": servers, "operations_per_s": rate, "limit": limit}
            for clients in CLIENTS for servers in SERVERS
            for rate, limit in [predict(servers, clients, costs, adapter, load)]]


def show(rows):
    print(f"{'million operations/s':>20}" + "".join(f"{servers:>9}" for servers in SERVERS)
          + "  servers")
    letters = {}
    for clients in CLIENTS:
        line = f"{clients:>12} clients"
        for row in (row for row in rows if row["clients"] == clients):
            letter = letters.setdefault(row["limit"], "abcdefg"[len(letters)])
            line += f"{row['operations_per_s'] / 1e6:>8.2f}{letter}"
        print(line)
    print("limited by: " + ", ".join(f"{letter} {limit}" for limit, letter in letters.items()))


def arguments():
    parser = argparse.ArgumentParser(prog="./run bench model", description=__doc__)
    parser.add_argument("--costs", metavar="FILE",
                        help="JSON of ./run bench get --transport shm; default: that of "
                             "bench/RESULTS.md")
    parser.add_argument("--json", metavar="FILE", help="also write the prediction to FILE")
    for kind in (Costs, Adapter, Load):
        for field in dataclasses.fields(kind):
            flag = "--" + field.name.replace("_", "-")
            if field.type is bool:
                parser.add_argument(flag, action="store_true")
            else:
                parser.add_argument(flag, type=field.type, help=f"({field.default:g})")
    return parser.parse_args()


def chosen(kind, options, start=None):
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(kind)
             if getattr(options, field.name) is not None}
    for name, value in given.items():
        share = name in ("put_share", "hottest_key")
        if not (0 <= value <= 1 if share else value > 0 or isinstance(value, bool)):
            raise Wrong(f"--{name.replace('_', '-')} is "
                        f"{'between 0 and 1' if share else 'above 0'}, not {value:g}")
    return dataclasses.replace(start or kind(), **given)


def main():
    options = arguments()
    try:
        costs, several = measured_costs(options.costs) if options.costs else (Costs(), {})
        costs = chosen(Costs, options, costs)
        adapter, load = chosen(Adapter, options), chosen(Load, options)
        rows = table(costs, adapter, load)
        print("Computed, not measured.", "GETs of two READs" if load.cold else "GETs of one READ",
              f"of {costs.record_bytes} bytes, {load.put_share:.0%} PUTs, {load.in_flight} in flight"
              f" a client; {costs.gets_per_s:,.0f} GETs/s of a client's processor")
        show(rows)
        checked = check(costs, several)
        for threads, predicted, rate in checked:
            print(f"check: {threads} threads over shared memory, predicted {predicted:,.0f} GETs/s, "
                  f"measured {rate:,.0f} ({rate / predicted:.2f})")
        if options.json:
            with open(options.json, "w", encoding="utf-8") as out:
                json.dump({"costs": dataclasses.asdict(costs),
                           "adapter": dataclasses.asdict(adapter),
                           "load": dataclasses.asdict(load), "predictions": rows,
                           "checks": [{"threads": threads, "predicted": predicted, "measured": rate}
                                      for threads, predicted, rate in checked]}, out, indent=2)
                out.write("\n")
    except (Wrong, OSError) as problem:
        print(f"bench model: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os._exit(1)
