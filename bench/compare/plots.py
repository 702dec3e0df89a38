"""Plots of what was measured, by gnuplot: medians, with bars from the least to the greatest."""

import collections
import dataclasses
import os
import shutil
import statistics
import subprocess
from typing import Callable

from common import Failed

# Measurements that are taken for plots alone.
EXTRA = {"verbs": ["by_clients_verbs", "by_value_size_verbs"],
         "shm": ["by_clients_shm", "by_value_size_shm", "sizes"]}


def draw(parts, directory):
    """Draws what there is in `parts`: by transport, what was measured over it. Returns the files, and
    sentences about what is left out."""
    made, left_out = [], []
    for plot in PLOTS:
        for over, part in parts.items():
            taken = [part["measurements"][name] for measurement in plot.measurements
                     for name in (measurement, f"{measurement}_{over}")
                     if name in part["measurements"]]
            series = plot.series([run for one in taken for run in one["runs"]])
            if series:
                made.append(os.path.join(directory, f"{plot.name}_{over}.svg"))
                gnuplot(made[-1], f"{plot.title}, over {part['note']}", plot, series)
            elif over in plot.over:
                why = [one["failed"] for one in taken if one["failed"]] or ["not measured"]
                left_out.append(f"{plot.name} over {over}: {why[0]}")
    return made, left_out


def gathered(points):
    """[(x, median, least, greatest)] of (x, y) pairs, several for each x."""
    by_x = collections.defaultdict(list)
    for x, y in points:
        by_x[x].append(y)
    return [(x, statistics.median(ys), min(ys), max(ys)) for x, ys in sorted(by_x.items())]


def by_store(runs, at):
    points = collections.defaultdict(list)
    for run in runs:
        if at in run and isinstance(run.get("gets_per_s"), dict):
            for store, rate in run["gets_per_s"].items():
                points[store].append((run[at], rate))
    return {store: gathered(of_store) for store, of_store in points.items()}


def clients(runs):
    return by_store(runs, "clients")


def value_size(runs):
    return by_store(runs, "value_bytes")


def percentiles(runs):
    """One GET at a time: of the store, cached or not, and of the others."""
    points = collections.defaultdict(list)

    def add(name, figures):
        for percent, us in figures.get("curve_us", []):
            points[name].append((1 / (1 - percent / 100), us))  # 90 %: 10, 99 %: 100, ...
    for run in runs:
        if "cold" in run:
            add("warm GET", run.get("warm") or run["ours"])
            add("cold GET", run["cold"])
        if "cold" in run and "theirs" in run:
            add(run["store"], min((way for way in run["theirs"]["ways"].values()
                                   if "p50_us" in way), key=lambda way: way["p50_us"]))
        if "ib_read_lat" in run:
            points["ib_read_lat"] += [(2, run["ib_read_lat"]["p50_us"]),
                                      (100, run["ib_read_lat"]["p99_us"])]
    return {name: gathered(pairs) for name, pairs in points.items()}


def loads(runs):
    kinds = {"warm": "hit, group cached", "cold": "hit, no cache", "miss": "miss, no cache",
             "warm_miss": "miss, group cached"}
    return {words: gathered([(run["load"], run[kind]["reads"]) for run in runs if "load" in run])
            for kind, words in kinds.items() if any("load" in run for run in runs)}


def growth(runs):
    """p99 of windows of 100 ms, from the begin on; each repetition its own point."""
    kinds = {"doubling": "while the keys double", "overwriting": "while as many are overwritten",
             "quiet": "while nobody writes"}
    return {words: gathered([(round(window["seconds"], 1), window["p99_us"])
                             for run in runs if kind in run for window in run[kind]["windows"]])
            for kind, words in kinds.items() if any(kind in run for run in runs)}


def keys(runs):
    return {"cold GET, p50": gathered([(run["keys"], run["cold"]["p50_us"]) for run in runs
                                       if "cold" in run and "keys" in run])} if runs else {}


@dataclasses.dataclass(frozen=True)
class Plot:
    name: str  # of the file
    over: tuple  # transports that it is drawn for
    measurements: tuple  # whose runs it takes; names without a transport
    series: Callable  # of the runs: {name: [(x, median, least, greatest)]}
    title: str
    x: str
    x_scale: str  # "", "percent" or "log" and a base
    y: str
    y_log: bool


BOTH = ("verbs", "shm")
PLOTS = [
    Plot("percentiles", BOTH, ("gets", "redis", "memcached"), percentiles,
         "Latency of GETs, one at a time", "percentile", "percent", "microseconds", True),
    Plot("clients", BOTH, ("by_clients",), clients, "GETs against clients, each one at a time",
         "clients", "log 2", "GETs/s", True),
    Plot("value_size", BOTH, ("by_value_size",), value_size, "GETs of one client, 32 in flight",
         "bytes of a value", "log 2", "GETs/s", True),
    Plot("reads_per_get", ("shm",), ("loads",), loads, "READs a GET against how full the index is",
         "part of the slots that is taken", "", "READs a GET", False),
    Plot("growth", ("shm",), ("doubling",), growth, "GETs while the number of keys doubles",
         "seconds", "", "p99 of 100 ms, microseconds", True),
    Plot("keys", ("shm",), ("sizes",), keys, "Cost of a GET against the number of keys", "keys",
         "log 10", "microseconds", False),
]

PERCENT_TICS = ", ".join(f"'{percent:g} %%' {1 / (1 - percent / 100):.6g}"
                         for percent in (50, 90, 99, 99.9, 99.99))


def gnuplot(path, title, plot, series):
    lines = ["set terminal svg size 900,560 dynamic background '#ffffff' font 'sans,13'",
             f"set output {quoted(path)}", f"set title {quoted(title)} noenhanced",
             f"set xlabel {quoted(plot.x)}", f"set ylabel {quoted(plot.y)}", "set grid",
             "set key outside center top horizontal", "set rmargin 6", "set logscale y" if plot.y_log else "set yrange [0:*]"]
    if plot.x_scale == "percent":
        lines += ["set logscale x", f"set xtics ({PERCENT_TICS})", "set xrange [1:*]"]
    elif plot.x_scale:
        lines += [f"set logscale x {plot.x_scale.split()[1]}", "set xtics format '%.0f'"]
    for number, points in enumerate(series.values()):
        lines += [f"$data{number} << END", *(" ".join(map(str, point)) for point in points), "END"]
    lines.append("plot " + ", ".join(
        f"$data{number} using 1:2 with linespoints lw 2 lc {number + 1} pt {number + 4}"
        f" title {quoted(name)} noenhanced, $data{number} with yerrorbars lc {number + 1} pt 0 notitle"
        for number, name in enumerate(series)))
    if not shutil.which("gnuplot"):
        raise Failed("no plots: gnuplot is not installed (./run install-deps)")
    done = subprocess.run(["gnuplot"], input="\n".join(lines) + "\n", check=False, text=True,
                          capture_output=True)
    if done.returncode != 0:
        raise Failed(f"gnuplot could not draw {path}: {done.stderr.strip()}")


def quoted(text):
    return "'" + text.replace("'", "''") + "'"
