#!/usr/bin/env python3
"""Checks rdma/PARITY.md: the headers, tests and examples that it names exist, no cell is empty, and
rows of missing features name none of them."""

import os
import re
import sys
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(SOURCE, "rdma", "examples")
HEADERS = [os.path.join(SOURCE, "rdma", *folders, "rkv", "rdma")
           for folders in (["include"], ["extras", "include"])]
LEDGER = os.path.join(SOURCE, "rdma", "PARITY.md")
STATES = {"SoftRoCE", "native", "hardware", "untested", "missing"}
WITHOUT = {"header": {"missing"}, "test": {"untested", "missing"}}  # per column: the states without an entry
COLUMNS = ["capability", "header", "test", "example", "seeds", "state"]
NONE = "-"


def rows(text):
    """(line number, {column: text}) of each row of the ledger's tables."""
    columns = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            columns = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if columns is None:
            columns = cells
        elif columns == COLUMNS and not set(cells[0]) <= set("-:"):
            yield number, dict(zip(columns, cells, strict=False)) | {"cells": len(cells)}


def tests_there_are():
    """The names of all tests of the project, in C++ and in Python, and of the compile_fail cases."""
    cases = os.path.join(SOURCE, "tests", "rdma", "compile_fail", "CMakeLists.txt")
    with open(cases, encoding="utf-8") as file:
        names = {f"compile_fail/{case}" for case in re.findall(r"\w+\.cc", file.read())}
    for folder, _, files in os.walk(os.path.join(SOURCE, "tests")):
        for name in files:
            if name.endswith((".cc", ".h")):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    names.update(".".join(found) for found in
                                 re.findall(r"^(?:(?:TYPED_)?TEST(?:_F|_P)?|RC_GTEST_PROP)"
                                            r"\(\s*(\w+),\s*(\w+)\b", file.read(), re.M))
            elif name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    case = ""
                    for kind, found in re.findall(r"^(class|    def) (\w+)\(", file.read(), re.M):
                        case = found if kind == "class" else case
                        names.add(f"{case}.{found}")
    return names


def named(cell):
    return [] if cell == NONE else re.findall(r"`([^`]+)`", cell) or [cell]


def problems(text, tests, headers=HEADERS):
    found = []
    for number, row in rows(text):
        def say(what, number=number):
            found.append(f"line {number}: {what}")
        if row["cells"] != len(COLUMNS) or not all(row.get(column) for column in COLUMNS):
            say("a cell is empty or missing")
            continue
        if row["state"] not in STATES:
            say(f"no such state: {row['state']}")
        for column in WITHOUT:
            if (row["state"] in WITHOUT[column]) != (row[column] == NONE):
                say(f"{row['state']}, and {column} is {row[column]}")
        for header in named(row["header"]):
            places = [*headers, SOURCE]
            if not any(os.path.isfile(os.path.join(place, header)) for place in places):
                say(f"no such header: {header}")
        for test in named(row["test"]):
            if test not in tests:
                say(f"no such test: {test}")
        for example in named(row["example"]):
            if row["state"] == "missing":
                say(f"missing, and example is {example}")
            elif not os.path.isfile(os.path.join(EXAMPLES, example)):
                say(f"no such example: {example}")
    return found


class Parity(unittest.TestCase):
    def test_the_ledger_is_true(self):
        with open(LEDGER, encoding="utf-8") as file:
            text = file.read()
        self.assertGreater(len(list(rows(text))), 50)
        self.assertEqual(problems(text, tests_there_are()), [])

    def test_what_is_wrong_is_noticed(self):
        head = "| " + " | ".join(COLUMNS) + " |\n|---|---|---|---|---|---|\n"
        tests = {"Devices.Are"}
        for row, problem in (
                ("| a | `device.h` | `Devices.Are` | - | A | SoftRoCE |", None),
                ("| a | - | - | - | A | missing |", None),
                ("| a | `device.h` | - | - | A | untested |", None),
                ("| a | - | - | - | A | untested |", "header is -"),
                ("| a | `device.h` | `Devices.Are` | - | | SoftRoCE |", "empty"),
                ("| a | `device.h` | `Devices.Are` | - | A |", "empty"),
                ("| a | `nowhere.h` | `Devices.Are` | - | A | native |", "no such header: nowhere.h"),
                ("| a | `device.h` | `Devices.Were` | - | A | native |", "no such test: Devices.Were"),
                ("| a | `device.h` | - | - | A | hardware |", "test is -"),
                ("| a | `device.h` | - | - | A | missing |", "header is `device.h`"),
                ("| a | `device.h` | `Devices.Are` | - | A | done |", "no such state"),
                ("| a | `device.h` | `Devices.Are` | `none.cc` | A | native |", "no such example"),
                ("| a | - | - | `none.cc` | A | missing |", "example is none.cc")):
            found = problems(head + row, tests)
            if problem is None:
                self.assertEqual(found, [], row)
            else:
                self.assertIn(problem, " ".join(found), row)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
