"""p50 of a PUT that is answered when it is in memory, and in turn of `ib_send_lat` with as many bytes
as the request has. perftest prints half of a round trip, so that two of these are one there and
back. Both sides spin, as both of perftest's do."""

from common import kvserver, program, progress
from perftest import perftest

FLAGS = {"--puts": (5_000, "in each measurement"), "--keys": (10_000, "in the store"),
         "--value-bytes": (100, "size of a value")}


def measure(options, figures):
    with kvserver(options, extra=["--poll", options.poll]):
        for _ in range(options.repetitions):
            put = program(options, "bench_put", "put", puts=options.puts, keys=options.keys,
                          value_bytes=options.value_bytes)
            # bytes, iterations, t_min, t_max, t_typical (median), ...
            half = perftest("ib_send_lat", options.address, 18519, put["request_bytes"],
                            ["-n", str(options.puts)])[4]
            figures.runs.append({"put": put, "ib_send_lat_half_us": half})
            figures.add("PUT p50 / two ib_send_lat", put["p50_us"] / (2 * half), 1.2)
            progress(f"PUT {put['p50_us']:.1f} us, ib_send_lat there and back {2 * half:.1f} us")
