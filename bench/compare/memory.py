"""Memory: bytes of index a key and of memory a record beyond key and value; keys in a GiB against
Redis; memory of the server for each client; and GETs/s with many clients against the best number of
clients."""

import re

import rivals
from common import kvserver, program, progress, without_huge_pages

FLAGS = {"--keys": (1_000_000, "before the doubling"),
         "--drawn-keys": (200_000, "before the doubling, values of 1 to 1,024 bytes"),
         "--memory": ("1GiB", "of the server"),
         "--clients": (128, "the most"),
         "--gets": (5_120_000, "of all clients together")}


def measure_index(options, figures):
    """Once: what is counted does not depend on what else the machine does."""
    for values, keys, least, most in (("100 B", options.keys, 100, 100),
                                      ("1 to 1,024 B", options.drawn_keys, 1, 1024)):
        with kvserver(options, options.memory):
            one = program(options, "bench_growth", "memory", keys=keys, least_bytes=least,
                          most_bytes=most)
        figures.runs.append({"values": values, **one})
        figures.add(f"memory of a record beyond key and value (B), values of {values}",
                    one["record_overhead_bytes"], 40)
        if least == most:
            figures.add("groups of the index a key (B)", one["group_bytes_per_key"], 12)
            figures.add("all memory of the index a key (B)", one["index_bytes_per_key"], 12)


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"^VmRSS:\s+(\d+) kB$", status.read(), re.MULTILINE)[1]) * 1024


def measure_redis(options, figures):
    """What the process of each server has more of, once the keys are stored, than when it is empty. Both
    in memory only, and without huge pages."""
    for repetition in range(options.repetitions):
        keys_in_gib = {}
        with (kvserver(options, options.memory, prepare=without_huge_pages) as server,
              rivals.rival("redis", prepare=without_huge_pages) as redis):
            for store, pid, load in (
                    ("rkv", server.pid, lambda **flags: program(options, "bench_get", "load", **flags)),
                    ("redis", redis.pid, lambda **flags: program(options, "bench_tcp", "load", **(
                        flags | {"server": redis, "protocol": "redis"})))):
                empty = resident_bytes(pid)
                load(keys=options.keys, value_bytes=100)
                keys_in_gib[store] = options.keys * 2**30 / (resident_bytes(pid) - empty)
        figures.runs.append({"keys_in_gib": keys_in_gib})
        figures.add("keys in a GiB, values of 100 B, / Redis", keys_in_gib["rkv"] / keys_in_gib["redis"], 1,
                    True)
        progress(f"{repetition + 1} of {options.repetitions}: " +
                 ", ".join(f"{store} {keys:.0f}" for store, keys in keys_in_gib.items()))


def measure_connections(options, figures):
    """Of a server made for many clients, which are there, less one made for a single client. Huge
    pages, which come or do not come by chance, would blur it by several MiB, 20 KiB a client."""
    for repetition in range(options.repetitions):
        resident = []
        for clients in (1, options.clients):
            with kvserver(options, "64MiB", ["--max-clients", str(clients)],
                          prepare=without_huge_pages) as server:
                one = program(options, "bench_get", "connected", threads=clients, pid=server.pid)
            figures.runs.append({"connected": one})
            resident.append(one["resident_kib"])
        figures.add("memory of the server for a client (KiB)",
                    (resident[1] - resident[0]) / (options.clients - 1), 64)
        progress(f"memory {repetition + 1} of {options.repetitions}")


def measure_clients(options, figures):
    counts = [1 << power for power in range(options.clients.bit_length())]
    settings = {"keys": 2_000, "value_bytes": 100}
    with kvserver(options, extra=["--max-clients", str(options.clients + 1)]):
        program(options, "bench_get", "load", **settings)
        for _ in range(options.repetitions):
            rates = {}
            for clients in counts:
                one = program(options, "bench_get", "threads", threads=clients,
                              gets=max(1, options.gets // clients), **settings)
                rates[clients] = one["gets_per_s"]
            figures.runs.append({"gets_per_s_by_clients": rates})
            figures.add("GETs/s with 128 clients / with the best number",
                        rates[counts[-1]] / max(rates.values()), 0.9, True)
            progress(", ".join(f"{clients}: {rate:.0f}/s" for clients, rate in rates.items()))
