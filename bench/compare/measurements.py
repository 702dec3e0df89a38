"""What is run for the rows: a function of one of the benchmarks, which takes its figures and what it
compares them with in turn, and the sizes it is run with."""

import dataclasses
import types
from typing import Callable

import curves
import disk
import durability
import get
import get_shm
import growth
import memory
import puts
import rivals
import storm
import threads
import ycsb
from common import default_address


@dataclasses.dataclass(frozen=True)
class Measurement:
    over: str  # "verbs", "shm" or "tcp"
    measure: Callable  # measure(options, figures)
    flags: dict  # of the benchmark: what it measures with if nothing else is said
    quick: dict  # instead, to see that it runs
    poll: str = "adaptive"
    settings: dict = dataclasses.field(default_factory=dict)  # instead of the benchmark's own


def server_cpu(options, figures):
    get.measure_server_cpu(options, figures, options.repetitions)


QUICK_GET = {"gets": 200, "cpu_gets": 2000, "keys": 500, "records_mib": 1}
QUICK_GROWTH = {"keys": 200, "gets": 200, "most_keys": 10_000, "loads_memory": "16MiB"}
QUICK_DISK = {"records": 2000, "slices": 1, "slice_ms": 20, "most_keys": 10_000, "anywhere": 1}
QUICK_MEMORY = {"keys": 10_000, "drawn_keys": 1000, "memory": "64MiB", "clients": 4, "gets": 200}
QUICK_PUTS = {"puts": 3200, "keys": 500}
QUICK_THREADS = {"thread_operations": 320, "keys": 100}
QUICK_CURVES = {"gets": 64, "keys": 100, "most_clients": 2, "records_mib": 1, "times_ours": 1}


def of_both(over):
    """What is measured over either transport."""
    fewer = over == "verbs"  # an emulated device takes its time
    made = {
        f"server_cpu_{over}": Measurement(over, server_cpu, get.FLAGS, QUICK_GET),
        f"mixed_{over}": Measurement(over, growth.measure_mixed, growth.FLAGS, QUICK_GROWTH,
                                     settings={"keys": 10_000, "gets": 10_000} if fewer else {}),
        f"connections_{over}": Measurement(over, memory.measure_connections, memory.FLAGS,
                                           QUICK_MEMORY),
        f"clients_{over}": Measurement(over, memory.measure_clients, memory.FLAGS, QUICK_MEMORY,
                                       settings={"gets": 12_800} if fewer else {}),
        f"storm_{over}": Measurement(over, storm.measure, storm.FLAGS,
                                     {"storm_gets": 2000, "least_tears": 0},
                                     settings={"storm_gets": 20_000} if fewer else {}),
        f"by_clients_{over}": Measurement(over, curves.measure_clients, curves.FLAGS, QUICK_CURVES,
                                          settings={"gets": 6_400} if fewer else {}),
        f"by_value_size_{over}": Measurement(over, curves.measure_value_sizes, curves.FLAGS,
                                             QUICK_CURVES,
                                             settings={"gets": 2_000, "keys": 1_000} if fewer else {})}
    for store in rivals.STORES:
        made[f"{store}_{over}"] = Measurement(
            over, rivals.measure_with(store), rivals.FLAGS,
            {"gets": 320, "keys": 500, "times_ours": 1},
            settings={"gets": 20_000, "keys": 10_000} if fewer else {})
    return made


MEASUREMENTS = {
    "gets": Measurement("verbs", get.measure_gets, get.FLAGS, QUICK_GET, poll="busy"),
    "ycsb_b": Measurement("shm", ycsb.measure, ycsb.FLAGS, {"records": 500, "operations": 50_000}),
    "mixes": Measurement("shm", ycsb.measure_mixes, ycsb.MIX_FLAGS,
                         {"records": 500, "operations": 5_000}),
    "loads": Measurement("shm", growth.measure_loads, growth.FLAGS, QUICK_GROWTH),
    "sizes": Measurement("shm", growth.measure_sizes, growth.FLAGS, QUICK_GROWTH,
                         settings={"most_keys": 10_000_000}),
    "copies": Measurement("shm", get_shm.measure_sizes, get.FLAGS, QUICK_GET,
                          settings={"gets": 20_000}),
    **of_both("verbs"),
    **of_both("shm"),
    "redis_tcp": Measurement("tcp", rivals.measure_with("redis"), rivals.FLAGS,
                             {"gets": 320, "keys": 500, "times_ours": 1}),
    **{f"threads_{over}": Measurement(over, threads.measure, threads.FLAGS, QUICK_THREADS,
                                      settings={"thread_operations": operations})
       for over, operations in (("verbs", 5_000), ("shm", 400_000), ("tcp", 50_000))},
    "instructions": Measurement("shm", get_shm.measure_instructions, get.FLAGS, {}),
    "puts": Measurement("verbs", puts.measure, puts.FLAGS, QUICK_PUTS, poll="busy"),
    "put_rates": Measurement("shm", puts.measure_rates, puts.RATE_FLAGS, QUICK_PUTS),
    "put_instructions": Measurement("shm", puts.measure_instructions, puts.FLAGS, QUICK_PUTS,
                                    settings={"puts": 20_000}),
    "index": Measurement("shm", memory.measure_index, memory.FLAGS, QUICK_MEMORY),
    "memory_redis": Measurement("shm", memory.measure_redis, memory.FLAGS, QUICK_MEMORY),
    **{name: Measurement("shm", disk.repeated(measure), durability.FLAGS, QUICK_DISK)
       for name, measure in (("sync", durability.measure_sync), ("put", durability.measure_put),
                             ("background", disk.measure_background),
                             ("restart", durability.measure_restart))},
    "doubling": Measurement("shm", growth.measure_doubling, growth.FLAGS, QUICK_GROWTH),
}


def options_for(measurement, given):
    """What its function is given. `given`: the command line of the comparison."""
    settings = {flag.strip("-").replace("-", "_"): value
                for flag, (value, _) in measurement.flags.items()}
    settings |= measurement.settings
    if given.quick:
        settings |= measurement.quick
    elif given.storm_gets:
        settings["storm_gets"] = given.storm_gets
    if given.scratch:
        settings["scratch"] = given.scratch
    return types.SimpleNamespace(**{
        "bin": given.bin, "address": given.address or default_address(),
        "transport": measurement.over, "poll": measurement.poll,
        "repetitions": given.repetitions, **settings})
