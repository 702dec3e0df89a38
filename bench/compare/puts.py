"""PUTs that are answered when they are in memory.

Over verbs: the p50 of one after the other, and in turn of `ib_send_lat` with as many bytes as the
request has (perftest prints half of a round trip, so that two of these are one there and back), and of
the same PUT over shared memory, which shows how much of it is code of client and server; the rate of
32 in flight, and in turn `ib_send_bw`'s messages with as many bytes. Both sides spin, as both of
perftest's do.

Over shared memory: the rate of 32 in flight, into an empty store and into a full one, and in turn of
as many SETs of Redis in a pipeline; instructions of client and server, counted by callgrind."""

import contextlib
import csv
import io
import os
import re
import subprocess
import tempfile
import types

import rivals
from common import Failed, kvserver, program, progress, wait_for
from perftest import perftest

FLAGS = {"--puts": (5_000, "in each measurement"), "--keys": (10_000, "in the store"),
         "--value-bytes": (100, "size of a value")}
RATE_FLAGS = {"--puts": (1_000_000, "in each measurement, a fifth as many of Redis"),
              "--keys": (200_000, "in each store"), "--value-bytes": (100, "size of a value")}
IN_FLIGHT = 32
CLIENTS = 16


def measure(options, figures):
    for _ in range(options.repetitions):
        repeat_over_verbs(options, figures)


def repeat_over_verbs(options, figures):
    # Servers that spin take turns: two at once would share a processor.
    with kvserver(options, extra=["--poll", options.poll]):
        put = one_after_the_other(options)
        size = put["request_bytes"]
        # bytes, iterations, t_min, t_max, t_typical (median), ...
        half = perftest("ib_send_lat", options.address, 18519, size, ["-n", str(options.puts)])[4]
        rate = overwrite(options, options.puts)
        # bytes, iterations, BW peak, BW average, message rate in millions
        messages = 1e6 * perftest("ib_send_bw", options.address, 18520, size,
                                  ["-n", str(options.puts), "-t", str(IN_FLIGHT)])[4]
    in_memory = types.SimpleNamespace(**{**vars(options), "transport": "shm"})
    with kvserver(in_memory, extra=["--poll", options.poll]):
        shared = one_after_the_other(in_memory)
    figures.runs.append({"put": put, "put_shm": shared, "ib_send_lat_half_us": half,
                         "puts_per_s": rate, "ib_send_bw_messages_per_s": messages})
    figures.add("PUT p50 / two ib_send_lat", put["p50_us"] / (2 * half), 1.2)
    figures.add("PUTs/s, 32 in flight, / ib_send_bw messages/s", rate / messages, 1, True)
    progress(f"PUT {put['p50_us']:.1f} us, {put['p50_us'] / (2 * half + shared['p50_us']):.2f} times"
             f" ib_send_lat there and back, {2 * half:.1f} us, and PUT over shm, {shared['p50_us']:.1f} us;"
             f" {rate:.0f} PUTs/s, ib_send_bw {messages:.0f}/s")


def one_after_the_other(options):
    return program(options, "bench_put", "put", puts=options.puts, keys=options.keys,
                   value_bytes=options.value_bytes)


def overwrite(options, puts, clients=1, depth=IN_FLIGHT):
    """PUTs/s of random keys that exist."""
    return program(options, "bench_put", "overwrite", puts=puts // clients, keys=options.keys,
                   value_bytes=options.value_bytes, threads=clients, depth=depth)["puts_per_s"]


# ---- against Redis

def measure_rates(options, figures):
    for _ in range(options.repetitions):
        # Each store is new: it grows while it is loaded.
        with kvserver(options, f"{max(64, options.keys * 1024 >> 20)}MiB"):
            loaded = program(options, "bench_put", "load", keys=options.keys,
                             value_bytes=options.value_bytes, depth=IN_FLIGHT)["puts_per_s"]
            rates = {clients: overwrite(options, options.puts, clients) for clients in (1, CLIENTS)}
            alone = overwrite(options, options.puts // 4, depth=1)
        theirs = sets_of_redis(options)
        figures.runs.append({"store": {"load": loaded, "alone": alone, **rates}, "redis": theirs})
        figures.add("PUTs/s, 1 client, 32 in flight, overwriting, / Redis", rates[1] / theirs[1], 6,
                    True)
        figures.add("PUTs/s, 1 client, 32 in flight, first load, / Redis", loaded / theirs["load"], 3,
                    True)
        figures.add("PUTs/s, 16 clients, 32 in flight each, / Redis",
                    rates[CLIENTS] / theirs[CLIENTS], 3, True)
        figures.add("PUTs/s, 1 client, 32 in flight / 1 in flight", rates[1] / alone, 4, True)
        progress(f"thousand PUTs/s: load {loaded / 1e3:.0f}, overwriting {rates[1] / 1e3:.0f}, 16"
                 f" clients {rates[CLIENTS] / 1e3:.0f}, 1 in flight {alone / 1e3:.0f}; Redis"
                 f" {theirs['load'] / 1e3:.0f}, {theirs[1] / 1e3:.0f}, {theirs[CLIENTS] / 1e3:.0f}")


def sets_of_redis(options):
    """The best rates of SETs that Redis reaches: driven by clients that spin before they wait, by
    clients that wait at once, and by its own program."""
    best = {"load": 0, 1: 0, CLIENTS: 0}
    for poll in ("adaptive", "event"):
        with rivals.rival("redis") as address:
            def drive(phase, **flags):
                return program(options, "bench_tcp", phase, server=address, poll=poll,
                               keys=options.keys, value_bytes=options.value_bytes, depth=IN_FLIGHT,
                               **flags)["operations_per_s"]
            found = {"load": drive("load"), **{
                clients: drive("run", threads=clients, gets=options.puts // 5 // clients)
                for clients in (1, CLIENTS)}}
            if poll == "event":
                for clients in (1, CLIENTS):
                    found[clients] = max(found[clients], redis_benchmark(options, address, clients))
        best = {key: max(rate, found[key]) for key, rate in best.items()}
    return best


def redis_benchmark(options, address, clients):
    done = subprocess.run(
        ["redis-benchmark", "-p", address.rpartition(":")[2], "-n", str(options.puts // 5), "-c",
         str(clients), "-P", str(IN_FLIGHT), "-r", str(options.keys), "-d", str(options.value_bytes),
         "--csv", "-t", "set"], check=True, capture_output=True, text=True)
    return rivals.finite(next(csv.DictReader(io.StringIO(done.stdout)))["rps"])


# ---- instructions

def measure_instructions(options, figures):
    """One sample: callgrind's counts of two runs, one with more PUTs. Both sides wait at once, since
    the instructions of a spin tell nothing."""
    for depth, words in ((IN_FLIGHT, "packed"), (1, "alone")):
        figures.add(f"server's instructions per PUT, {words}", of_server(options, depth),
                    800 if depth > 1 else 1_800)
        figures.add(f"client's instructions per PUT, {words}", of_client(options, depth),
                    500 if depth > 1 else 1_200)


def put_times(options, puts, depth, prefix=()):
    program(options, "bench_put", "overwrite", prefix, puts=puts, keys=options.keys,
            value_bytes=options.value_bytes, depth=depth, poll="event")


def of_client(options, depth):
    with kvserver(options, extra=["--poll", "event"]):
        program(options, "bench_put", "load", keys=options.keys, value_bytes=options.value_bytes,
                depth=IN_FLIGHT)
        counts = []
        for puts in (options.puts, 2 * options.puts):
            with callgrind() as run:
                put_times(options, puts, depth, run.prefix)
                counts.append(run.instructions())
    return (counts[1] - counts[0]) / options.puts


def of_server(options, depth):
    counts = []
    for puts in (options.puts, 2 * options.puts):
        with callgrind() as run:
            with server_under(options, run.prefix):
                program(options, "bench_put", "load", keys=options.keys,
                        value_bytes=options.value_bytes, depth=IN_FLIGHT, poll="event")
                put_times(options, puts, depth)
            counts.append(run.instructions())
    return (counts[1] - counts[0]) / options.puts


@contextlib.contextmanager
def callgrind():
    """A run under callgrind: `prefix` of its command, and instructions() of its whole process, once it
    has ended."""
    with tempfile.TemporaryDirectory(prefix="rkv-callgrind-") as scratch:
        out = os.path.join(scratch, "out")

        def instructions():
            with open(out, encoding="utf-8") as text:
                totals = re.search(r"^(?:summary|totals): (\d+)", text.read(), re.MULTILINE)
            if not totals:
                raise Failed("callgrind wrote no total")
            return int(totals.group(1))
        yield types.SimpleNamespace(
            prefix=["valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={out}"],
            instructions=instructions)


@contextlib.contextmanager
def server_under(options, prefix):
    """A kvserver of one worker that another program runs."""
    server = subprocess.Popen(
        [*prefix, os.path.join(options.bin, "kvserver"), "--transport", "shm", "--listen",
         options.address, "--memory", "128MiB", "--threads", "1", "--poll", "event"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = []
        wait_for(lambda: said.append(server.stdout.readline()) or "kvserver ready" in said[-1],
                 "kvserver", server)
        yield
    finally:
        server.terminate()
        server.wait(timeout=120)
