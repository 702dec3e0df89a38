#!/usr/bin/env python3
"""Checks a model with spin: as it is, and with each of its rules left out.

  check.py MODEL.pml [--long] [--only NAME]

A model's head comment says what is to be tried, one line each:

   * accept [FLAGS]: what it is        spin searches all of it and finds nothing
   * reject FLAGS: the rule left out   spin finds an assertion violated, else the rule is no rule

FLAGS are macros, `NAME` or `NAME=VALUE`. `accept-long` and `reject-long` are tried with --long
alone, the others without it. Anything else than these two verdicts is a failure: a search
that ran out of depth or memory, another error than an assertion, a word nobody knows.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

MEMORY_MIB = 3000
DEPTH = 1000000
CASE = re.compile(r"^ \* (accept|reject)(-long)?((?: [A-Z_0-9=]+)*): (.+)$", re.MULTILINE)


def run(command, directory):
    return subprocess.run(command, cwd=directory, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout


def search(model, flags, wanted, directory):
    """The verdict, how many states, and pan's whole answer."""
    # A wrong run is found soon: there compiling takes longer than searching.
    optimise = "-O1" if wanted == "accept" else "-O0"
    run(["spin", *("-D" + flag for flag in flags), "-a", str(model)], directory)
    run(["gcc", optimise, "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}", "-o", "pan",
         "pan.c"], directory)
    answer = run(["./pan", f"-m{DEPTH}", "-w22"], directory)
    states = re.search(r"(\d[\d.e+]*) states, stored", answer)
    states = int(float(states[1])) if states else 0
    whole = "max search depth too small" not in answer and "not completed" not in answer
    if "assertion violated" in answer:
        return "reject", states, answer
    if "errors: 0" in answer and whole and states > 0:
        return "accept", states, answer
    return "neither", states, answer


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--long", action="store_true", help="the long ones instead of the others")
    parser.add_argument("--only", metavar="FLAG", help="the cases with this flag")
    options = parser.parse_args()
    if not shutil.which("spin"):
        print("spin is missing: ./run install-deps")
        return 1
    model = options.model.resolve()
    cases = [(wanted, flags.split(), rule)
             for wanted, long, flags, rule in CASE.findall(model.read_text(encoding="utf-8"))
             if bool(long) == options.long]
    if options.only:
        cases = [case for case in cases if options.only in case[1]]
    failed = 0
    print(f"{'model':<10} {'variant':<44} {'states':>11} {'verdict':<8} {'seconds':>7}")
    for wanted, flags, rule in cases:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            verdict, states, answer = search(model, flags, wanted, directory)
        seconds = time.monotonic() - begin
        name = " ".join(flags) or "as it is"
        print(f"{model.stem:<10} {name:<44} {states:>11} {verdict:<8} {seconds:>7.1f}", flush=True)
        if verdict != wanted:
            failed += 1
            print(f"  WRONG, should be: {wanted}. {rule}\n{answer}")
    if not cases:
        print("no such case")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stdout}")
        sys.exit(1)
