"""Threads of one process: with a Client each, and with one SharedClient of one or two connections."""

from common import kvserver, program, progress

FLAGS = {"--thread-operations": (100_000, "GETs of all threads together; a fifth as many PUTs"),
         "--keys": (10_000, "in the store"), "--value-bytes": (100, "size of a value")}
THREADS = (1, 4, 16)


def measure(options, figures):
    for _ in range(options.repetitions):
        with kvserver(options):
            program(options, "bench_put", "load", keys=options.keys, value_bytes=options.value_bytes,
                    depth=32)
            for kind, operations in (("get", options.thread_operations),
                                     ("put", options.thread_operations // 5)):
                for threads in THREADS:
                    compare(options, figures, kind, threads, max(1, operations // threads))


def compare(options, figures, kind, threads, operations):
    def rate(**how):
        return program(options, "bench_threads", kind, keys=options.keys, threads=threads,
                       value_bytes=options.value_bytes, operations=operations, **how)["per_s"]
    own = rate()
    shared = {connections: rate(share="yes", connections=connections) for connections in (1, 2)}
    figures.runs.append({"kind": kind, "threads": threads, "own": own, "shared": shared})
    for connections, found in shared.items():
        figures.add(f"{kind.upper()}s/s of {threads} threads, a shared client of {connections} / a "
                    "client each", found / own)
    progress(f"thousand {kind.upper()}s/s of {threads} threads: {own / 1e3:.0f} with a client each, "
             + ", ".join(f"{found / 1e3:.0f} with one of {n}" for n, found in shared.items()))
