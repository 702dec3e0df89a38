"""What plots need and no row does: GETs/s of the store and of the others against the number of clients,
and against the size of a value. A store that is not installed is left out, and says so."""

import contextlib

import get_shm
import rivals
from common import Failed, kvserver, progress
from perftest import perftest

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
FLAGS = {"--gets": (64_000, "of all clients together"),
         "--keys": (10_000, "in each store"),
         "--times-ours": (10, "as many of the store, over shared memory: they are sooner over"),
         "--value-bytes": (100, "size of a value"),
         "--most-clients": (64, "at once"),
         "--records-mib": (64, "of values at most, when their size varies")}


@contextlib.contextmanager
def loaded(options):
    """The others' addresses by name; all of them and the store have the keys."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(kvserver(options, "640MiB",
                                     ["--max-clients", str(options.most_clients + 1)]))
        rivals.ours(options, "load")
        others = {}
        for store in rivals.STORES:
            try:
                others[store] = stack.enter_context(rivals.rival(store))
            except Failed as problem:
                progress(f"the plot is without {store}: {problem}")
                continue
            rivals.theirs(options, store, others[store], "load")
        yield others


def rates(options, figures, others, phase, clients, depth, at):
    """A run for each store; `at`: where on the plot."""
    one = rivals.ours(options, phase, clients, depth)
    found = {"rkv": one["gets_per_s"]}
    for store, address in others.items():
        found[store] = rivals.their_gets(options, store, address, clients, depth)["gets_per_s"]
    figures.runs.append({**at, "gets_per_s": found})


def measure_clients(options, figures):
    with loaded(options) as others:
        for repetition in range(options.repetitions):
            for clients in CLIENTS:
                if clients <= options.most_clients:
                    rates(options, figures, others, "threads", clients, 1, {"clients": clients})
            progress(f"clients {repetition + 1} of {options.repetitions}")


def measure_value_sizes(options, figures):
    most_keys = options.keys
    for value_bytes in get_shm.VALUES:
        options.value_bytes = value_bytes
        options.keys = min(most_keys, (options.records_mib << 20) // value_bytes)
        with loaded(options) as others:
            for _ in range(options.repetitions):
                rates(options, figures, others, "pipelined", 1, 32,
                      {"value_bytes": value_bytes})
                if options.transport == "verbs":
                    add_read_bw(options, figures.runs[-1])
        progress(f"values of {value_bytes} bytes")


def add_read_bw(options, run):
    size = rivals.ours(options, "warm")["record_read_bytes"]
    columns = perftest("ib_read_bw", options.address, 18520, size,
                       ["-n", str(options.gets), "-t", "32", "-o", "32"])
    run["gets_per_s"]["ib_read_bw"] = columns[4] * 1e6
