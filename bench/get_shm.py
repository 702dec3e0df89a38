"""`./run bench get --transport shm`: GET over shared memory against copies of the same bytes."""

from common import kvserver, program, progress
from instructions import warm_get

VALUES = [16, 100, 1024, 4096, 16384, 65536]
MOST_KEYS = 500_000


def settings_for(options, value_bytes):
    keys = min(MOST_KEYS, (options.records_mib << 20) // (value_bytes + 64))
    return {"gets": options.gets, "keys": keys, "value_bytes": value_bytes}


def measure_size(options, value_bytes, figures):
    settings = settings_for(options, value_bytes)
    with kvserver(options, "640MiB"):
        program(options, "bench_get", "load", **settings)
        for _ in range(options.repetitions):
            copy = program(options, "bench_get", "copy", **settings)
            warm = program(options, "bench_get", "warm", **settings)
            cold = program(options, "bench_get", "cold", **settings)
            figures.runs.append({"value_bytes": value_bytes, "copy": copy, "warm": warm,
                                 "cold": cold})
            size = f"{value_bytes} B"
            figures.add(f"copy p50 (us), {size}", copy["p50_us"])
            figures.add(f"warm p50 (us), {size}", warm["p50_us"])
            figures.add(f"warm p99 (us), {size}", warm["p99_us"])
            figures.add(f"cold p50 (us), {size}", cold["p50_us"])
            figures.add(f"cold p99 (us), {size}", cold["p99_us"])
            figures.add(f"warm p50 / copy p50, {size}", warm["p50_us"] / copy["p50_us"], 3)
            progress(f"{size}: copy {copy['p50_us']:.2f} us, warm {warm['p50_us']:.2f} us,"
                     f" cold {cold['p50_us']:.2f} us")


def measure_rates(options, figures):
    settings = settings_for(options, 100)
    with kvserver(options, "640MiB"):
        program(options, "bench_get", "load", **settings)
        for _ in range(options.repetitions):
            for threads in (1, 2):
                rate = program(options, "bench_get", "threads", threads=threads,
                               **{**settings, "gets": 10 * options.gets})
                figures.add(f"GETs/s, {threads} client thread(s), 100 B", rate["gets_per_s"])
                figures.runs.append({"threads": threads, **rate})


def measure_instructions(options, figures):
    """One sample: what callgrind counts does not depend on what else the machine does."""
    settings = {"keys": 10_000, "value_bytes": 100}
    with kvserver(options):
        program(options, "bench_get", "load", **settings)
        figures.add("client instructions per warm GET, 100 B", warm_get(options), 400)


def measure_sizes(options, figures):
    for value_bytes in VALUES:
        measure_size(options, value_bytes, figures)


def measure(options, figures):
    measure_sizes(options, figures)
    measure_rates(options, figures)
    measure_instructions(options, figures)


def describe(options):
    return (f"at most {MOST_KEYS} keys and {options.records_mib} MiB of records, {options.gets} GETs"
            " a measurement, drawn evenly")
