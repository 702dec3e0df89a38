"""GETs of the store and, in turn, the same GETs of Redis or of memcached over loopback TCP: as many
clients with as many in flight, keys of 16 bytes drawn evenly from as many, values of as many bytes,
on the same machine. All are driven by programs of ours with one clock and one histogram (bench_get,
bench_tcp), the other store several times: by clients that spin for 20 us before they wait, as the
store's do, by clients that wait at once, which is better for both where processors are few, and
Redis by redis-benchmark, its own. The best of these counts.

The other store has its own defaults (Redis one thread, memcached four), but Redis writes nothing to
disk. The store's server has its defaults as well."""

import contextlib
import csv
import functools
import io
import math
import shutil
import socket
import subprocess

from common import Failed, kvserver, program, progress, wait_for

STORES = ("redis", "memcached")
FLAGS = {"--gets": (100_000, "in each measurement"),
         "--keys": (100_000, "in each store"),
         "--times-ours": (10, "as many of the store, over shared memory: they are sooner over"),
         "--value-bytes": (100, "size of a value")}
# Name of the figure, phase of bench_get, clients, in flight each.
RATES = [("GETs/s, 1 client, 32 in flight", "pipelined", 1, 32),
         ("GETs/s, 16 clients, 1 in flight each", "threads", 16, 1)]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Rival(str):
    """The address of another store's server."""

    pid = 0  # of its process


@contextlib.contextmanager
def rival(store, *arguments, prepare=None):
    """The server of another store, in memory only, with these arguments besides. `prepare` is called in
    its process."""
    port = free_port()
    command = {"redis": ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "",
                         "--appendonly", "no"],
               "memcached": ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m",
                             "1024", "-u", "nobody"]}[store] + list(arguments)
    if not shutil.which(command[0]):
        raise Failed(f"{command[0]} is not installed (./run install-deps)")
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd="/",
                              preexec_fn=prepare)
    try:
        wait_for(lambda: answers(port), command[0], server)
        found = Rival(f"127.0.0.1:{port}")
        found.pid = server.pid
        yield found
    finally:
        server.kill()
        server.wait()


def settings(options, clients, depth):
    return {"gets": options.gets // clients, "threads": clients, "depth": depth,
            "keys": options.keys, "value_bytes": options.value_bytes}


def ours(options, phase, clients=1, depth=1):
    flags = settings(options, clients, depth)
    if options.transport == "shm":
        flags["gets"] *= options.times_ours
    return program(options, "bench_get", phase, **flags)


def theirs(options, store, address, phase, clients=1, depth=1, **flags):
    return program(options, "bench_tcp", phase, server=address, protocol=store,
                   **settings(options, clients, depth), **flags)


def redis_benchmark(options, address, clients, depth):
    """GETs/s by Redis's own program, of the keys that bench_tcp has stored."""
    done = subprocess.run(
        ["redis-benchmark", "-p", address.rpartition(":")[2], "-n", str(options.gets), "-c",
         str(clients), "-P", str(depth), "-r", str(options.keys), "--csv", "GET",
         "user__rand_int__"], check=True, capture_output=True, text=True)
    return finite(next(csv.DictReader(io.StringIO(done.stdout)))["rps"])


def finite(text):
    """A rate that redis-benchmark has printed; 0 of a run shorter than its clock's tick."""
    rate = float(text)
    return rate if math.isfinite(rate) else 0


def their_gets(options, store, address, clients, depth):
    """Each way of driving the other store; the best p50 and the best rate count."""
    ways = {poll: theirs(options, store, address, "get", clients, depth, poll=poll)
            for poll in ("adaptive", "event")}
    best = {"p50_us": min(way["p50_us"] for way in ways.values()),
            "gets_per_s": max(way["gets_per_s"] for way in ways.values())}
    if store == "redis":
        ways["redis-benchmark"] = {"gets_per_s": redis_benchmark(options, address, clients, depth)}
        best["gets_per_s"] = max(best["gets_per_s"], ways["redis-benchmark"]["gets_per_s"])
    return {**best, "ways": ways}


def pair(options, store, address, figures, phase, clients, depth):
    one = ours(options, phase, clients, depth)
    other = their_gets(options, store, address, clients, depth)
    figures.runs.append({"store": store, "clients": clients, "depth": depth, "ours": one,
                         "theirs": other})
    return one, other


def repeat(options, store, address, figures):
    one, other = pair(options, store, address, figures, "warm", 1, 1)
    figures.runs[-1]["cold"] = ours(options, "cold")
    figures.add(f"p50 of a GET, 1 client, / {store}", one["p50_us"] / other["p50_us"], 0.2)
    progress(f"p50 of a GET: {one['p50_us']:.2f} us, {store} {other['p50_us']:.2f} us")
    for name, phase, clients, depth in RATES:
        one, other = pair(options, store, address, figures, phase, clients, depth)
        figures.add(f"{name}, / {store}", one["gets_per_s"] / other["gets_per_s"], 5, True)
        progress(f"{name}: {one['gets_per_s']:.0f}, {store} {other['gets_per_s']:.0f}")


def measure(store, options, figures):
    with rival(store) as address, kvserver(options):
        ours(options, "load")
        theirs(options, store, address, "load")
        for _ in range(options.repetitions):
            repeat(options, store, address, figures)


def measure_with(store):
    return functools.partial(measure, store)
