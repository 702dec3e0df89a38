#!/usr/bin/env python3
"""`./run bench compare`: every figure of the store that is promised relative to something else - raw
verbs, copies of memory, Redis, memcached, RocksDB, the disk - with its goal, each taken in turn with
what it is compared with. Prints a table of the rows; --json FILE writes a list of
{row, name, figure, goal, holds, samples, ...}."""

import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import plots  # noqa: E402
import table  # noqa: E402
from common import Failed, Figures, environment, progress  # noqa: E402
from measurements import MEASUREMENTS, options_for  # noqa: E402
from rows import ROWS  # noqa: E402

TRANSPORTS = ("verbs", "shm", "tcp")


def arguments():
    """`./run` calls this three times with the same flags: to plan, which says what is wrong with the
    flags and prints over which transports to measure; to measure over each of them, where it is;
    and to report on all."""
    parser = argparse.ArgumentParser(prog="./run bench compare", description=__doc__)
    parser.add_argument("step", choices=["plan", "measure", "report"], help=argparse.SUPPRESS)
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    parser.add_argument("--plots", metavar="DIRECTORY", help="also draw SVG files into DIRECTORY")
    parser.add_argument("--only", metavar="ROW,...", help="only these rows (default: all)")
    parser.add_argument("--transport", choices=["all", *TRANSPORTS], default="all",
                        help="rows over real verbs, over shared memory, over TCP, or all (default: all)")
    parser.add_argument("--repetitions", type=int, metavar="N", help="repetitions of each measurement (default 5)")
    parser.add_argument("--quick", action="store_true",
                        help="a tiny run to check that it works: the figures mean nothing")
    parser.add_argument("--scratch", metavar="DIRECTORY",
                        help="directory for data, on a disk (default: beside the programs)")
    parser.add_argument("--storm-gets", type=int, metavar="N",
                        help="GETs that race writers in a repetition of row 17")
    parser.add_argument("--bin", default="build/release/bin", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--over", choices=TRANSPORTS, help=argparse.SUPPRESS)
    parser.add_argument("--parts", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.repetitions is None:
        given.repetitions = 1 if given.quick else 5
    if given.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    if given.storm_gets is not None and given.storm_gets < 1:
        parser.error("--storm-gets must be at least 1")
    known = sorted({row.number for row in ROWS})
    try:
        given.only = [int(number) for number in (given.only or "").split(",") if number]
    except ValueError:
        parser.error("--only needs numbers of rows, such as 1,4,11")
    unknown = sorted(set(given.only) - set(known))
    if unknown:
        parser.error(f"--only: there is no row {unknown[0]}; the rows are {table.listed(known)}")
    if given.json and not os.path.isdir(os.path.dirname(os.path.abspath(given.json))):
        parser.error(f"--json: no such directory: {os.path.dirname(given.json)}")
    if given.plots and not os.path.isdir(os.path.dirname(os.path.abspath(given.plots))):
        parser.error(f"--plots: no such directory: {os.path.dirname(given.plots)}")
    if given.scratch and not os.path.isdir(given.scratch):
        parser.error(f"--scratch: no such directory: {given.scratch}")
    given.rows = [row for row in ROWS if (not given.only or row.number in given.only)
                  and given.transport in ("all", row.over)]
    if not given.rows:
        parser.error(f"--only: none of these rows is measured over {given.transport}")
    return given


def measure(given):
    """Over one transport, what the rows take; each measurement's end is written at once, so that
    nothing that was measured is lost with what comes after it."""
    names = list(dict.fromkeys(row.measurement for row in given.rows if row.over == given.over))
    if given.plots and not given.only:
        names += plots.EXTRA.get(given.over, [])
    part = {"note": environment(given.over)["note"], "measurements": {}}
    for number, name in enumerate(names, 1):
        progress(f"{name} over {given.over}, {number} of {len(names)}")
        figures, failed = Figures(), None
        measurement = MEASUREMENTS[name]
        try:
            measurement.measure(options_for(measurement, given), figures)
        except (Failed, OSError, subprocess.SubprocessError) as problem:
            failed = str(problem)
            progress(f"{name}: {failed}")
        except KeyboardInterrupt:
            failed = "interrupted"
        part["measurements"][name] = {"samples": figures.samples, "failed": failed,
                                      "runs": figures.runs}
        write(os.path.join(given.parts, f"{given.over}.json"), part)
        if failed == "interrupted":
            return 130
    return 0


def write(path, content):
    with open(path + ".new", "w", encoding="utf-8") as out:
        json.dump(content, out, indent=1)
        out.write("\n")
    os.replace(path + ".new", path)


def report(given):
    parts = {}
    for over in TRANSPORTS:
        path = os.path.join(given.parts, f"{over}.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as text:
                parts[over] = json.load(text)
    rows = table.judged(given.rows, parts, given.quick)
    table.show(rows, parts, given)
    if given.json:
        write(given.json, rows)
    try:
        if given.plots:
            os.makedirs(given.plots, exist_ok=True)
            made, left_out = plots.draw(parts, given.plots)
            print(f"\n{len(made)} plots in {given.plots}", *(f"no plot of {why}" for why in left_out),
                  sep="\n")
    except Failed as problem:
        print(f"bench compare: {problem}", file=sys.stderr)
        return 4
    return 0 if all(line["complete"] for line in rows) else 4


def main():
    given = arguments()
    if given.step == "plan":
        print(*sorted({row.over for row in given.rows}))
        return 0
    return measure(given) if given.step == "measure" else report(given)


if __name__ == "__main__":
    sys.exit(main())
