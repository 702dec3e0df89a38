#!/usr/bin/env python3
"""Misuse of the verbs library does not compile, for the reason named in each case; its twin compiles.

    compile_fail_test.py --compiler g++ [--clang clang++-19] [--include DIR]... CASE...
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

ALWAYS = ["rkv/rdma/queue_pair.h", "rkv/rdma/connect.h"]
# No other warning is an error: a case must fail for its own reason.
ANALYSES = [
    flag
    for analysis in ("consumed", "dangling", "thread-safety")
    for flag in (f"-W{analysis}", f"-Werror={analysis}")
]
LIMIT_S = 120


class Case:
    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        marks = dict(re.findall(r"^// (expect|only|needs): (.+)$", text, re.MULTILINE))
        self.expect = marks.get("expect", "")
        self.only_clang = marks.get("only") == "clang"
        self.needs = marks.get("needs")
        self.has_both = "RKV_WRONG" in text


class Compiler:
    """A compiler with the common headers compiled once."""

    def __init__(self, command, flags, folder):
        self.command = [command, "-std=c++23", *flags]
        name = os.path.basename(command)
        self.header = os.path.join(folder, name + "_all.h")
        with open(self.header, "w", encoding="utf-8") as file:
            file.writelines(f'#include "{header}"\n' for header in ALWAYS)
        self.is_clang = "clang" in name
        self.compiled = self.header + (".pch" if self.is_clang else ".gch")
        done = self.run("-x", "c++-header", self.header, "-o", self.compiled)
        if done.returncode != 0:
            raise SystemExit(f"{command} does not compile the library's headers:\n{done.stderr}")

    def run(self, *arguments):
        return subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env=os.environ | {"LC_ALL": "C"},
        )

    def check(self, case, wrong):
        arguments = ["-fsyntax-only"]
        arguments += ["-include-pch", self.compiled] if self.is_clang else ["-include", self.header]
        arguments += ["-include", case.needs] if case.needs else []
        arguments += ["-DRKV_WRONG"] if wrong else []
        return self.run(*arguments, case.path)


def judge(case, compiler):
    """Returns the fault of a case, or None."""
    if not case.expect or not case.has_both:
        return "needs a line `// expect:` and code under RKV_WRONG"
    twin = compiler.check(case, wrong=False)
    if twin.returncode != 0:
        return "its right half does not compile:\n" + twin.stderr
    wrong = compiler.check(case, wrong=True)
    if wrong.returncode == 0:
        return "its wrong half compiles"
    errors = [line for line in wrong.stderr.splitlines() if "error:" in line or "note:" in line]
    if not any(re.search(case.expect, line) for line in errors):
        return f"fails for another reason than /{case.expect}/:\n" + wrong.stderr
    return None


def self_check(compiler, folder):
    """Checks that judge() rejects cases that prove nothing."""
    halves = {
        "compiles": ("// expect: x\n#ifdef RKV_WRONG\nint a;\n#endif\n", "its wrong half compiles"),
        "another": ("// expect: no such word\n#ifdef RKV_WRONG\nint a = b;\n#endif\n", "another reason"),
        "twin": ("// expect: x\n#ifndef RKV_WRONG\nint a = b;\n#endif\n", "its right half"),
        "bare": ("#ifdef RKV_WRONG\nint a = b;\n#endif\n", "needs a line"),
    }
    for name, (text, answer) in halves.items():
        path = os.path.join(folder, name + ".cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        found = judge(Case(path), compiler)
        if found is None or answer not in found:
            yield f"the judge says {found!r} of a case that should be reported: {answer}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--clang", default="")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    flags = [part for folder in options.include for part in ("-I", folder)]
    cases = [Case(path) for path in options.cases]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(3) as pool:
        usual = pool.submit(Compiler, options.compiler, flags, folder)
        clang = None
        if os.path.exists(options.clang):
            clang = pool.submit(Compiler, options.clang, flags + ANALYSES, folder)
        usual, clang = usual.result(), clang.result() if clang else None
        jobs = {}
        for case in cases:
            if case.only_clang and clang is None:
                print(f"{case.name}: left out, there is no clang++-19")
                continue
            jobs[case.name] = pool.submit(judge, case, clang if case.only_clang else usual)
        failures = list(self_check(usual, folder))
        failures += [f"{name}: {job.result()}" for name, job in jobs.items() if job.result()]
    print(f"{len(jobs)} cases, {len(failures)} of them wrong")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
