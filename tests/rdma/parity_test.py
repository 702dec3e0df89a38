#!/usr/bin/env python3
"""Checks PARITY.md: the headers, tests and examples that it names exist, states and the column
`siw` agree with the lists of tests, every row is complete, and every library has its sections. What
its rows say waits for hardware is what the table of rdma/README.md says.

    tests/rdma/parity_test.py            # checks
    tests/rdma/parity_test.py --fill     # writes the column `siw`
"""

import collections
import fnmatch
import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
EXAMPLES = os.path.join(SOURCE, "rdma", "examples")
HEADERS = [os.path.join(SOURCE, "rdma", *folders, "rkv", "rdma")
           for folders in (["include"], ["extras", "include"])]
PAGE = os.path.join(HERE, "PARITY.md")
GUIDE = os.path.join(SOURCE, "rdma", "README.md")
TESTS = [HERE, os.path.join(SOURCE, "tests", "common")]
LIBRARIES = "ABCDE"
LAST = "Beyond all five"
WITH_TEST = {"SoftRoCE", "native", "hardware"}
STATES = WITH_TEST | {"untested", "missing", "not wanted"}
NOT_THERE = {"missing", "not wanted"}  # rows without a header and an example
SHOWN = {"SoftRoCE", "native"}  # a note may say what their tests do not see
COLUMNS = ["capability", "header", "test", "example", "state", "siw", "note"]
NONE = "-"
UNSEEN = ["feature", "header", "library", "what the tests see"]  # the guide's table
LIBRARY_OF = {"efa.h": "rkv::rdma_efa"}
# How many there are: rows of the page, features of the guide's table, tests left out on soft-iWARP.
# With fewer, this script no longer reads them, or some were removed: then change the number too.
ROWS, FEATURES, PATTERNS = 426, 13, 48

# Where a test runs. `device`: a program on real verbs; `anywhere`: a program that needs no device;
# `siw`: a program on soft-iWARP, and not left out there.
Where = collections.namedtuple("Where", ["device", "anywhere", "siw"])


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


# ---- the lists of tests


def files_of_tests():
    for place in TESTS:
        for folder, _, names in os.walk(place):
            yield from (os.path.join(folder, name) for name in names)


def programs():
    """({source: {program}}, {program: labels}) by the CMakeLists.txt of tests/rdma."""
    sources, labels = collections.defaultdict(set), collections.defaultdict(set)
    for path in files_of_tests():
        if os.path.basename(path) != "CMakeLists.txt":
            continue
        text, folder = read(path), os.path.dirname(path)
        for program, body in re.findall(r"rkv_test(?:_program)?\((\w+)([^)]*)\)", text):
            for source in re.findall(r"\S+\.cc", body):
                sources[os.path.normpath(os.path.join(folder, source))].add(program)
            for marks in re.findall(r"LABELS ((?:[a-z_]+\s*)+)", body):
                labels[program].update(marks.split())
        for program, script in re.findall(r"add_test\(NAME (\w+)\s+COMMAND [^)]*?\}/(\S+\.py)", text):
            sources[os.path.join(folder, script)].add(program)
        for program, marks in re.findall(
                r'set_tests_properties\((\w+)\s+PROPERTIES\s+LABELS "?([a-z_;]+)', text):
            labels[program].update(marks.split(";"))
    return sources, labels


def left_out_on_siw():
    """{program: patterns of tests that it leaves out on soft-iWARP}."""
    loop = re.search(r"foreach\(name ([\w ]+)\)[^)]*\$\{list_of_iwarp\}", read(HERE, "CMakeLists.txt"))
    patterns = {f"rdma_{name}_test": [] for name in loop[1].split()}
    for name, pattern in re.findall(r"^(\w+) (\S+)$", read(HERE, "not_on_iwarp.txt"), re.M):
        patterns[f"rdma_{name}_test"].append(pattern)
    return patterns


def in_cpp(text, instances):
    """(name, name as googletest filters it) of each test of a C++ file."""
    for kind, suite, name in re.findall(
            r"^(TYPED_TEST_P|TYPED_TEST|TEST_P|TEST_F|TEST|RC_GTEST_PROP)\(\s*(\w+),\s*(\w+)\b",
            text, re.M):
        test = f"{suite}.{name}"
        if kind == "TYPED_TEST":
            yield test, f"{suite}/0.{name}"
            continue
        if not kind.endswith("_P") or kind == "RC_GTEST_PROP":
            yield test, test
            continue
        for prefix in instances.get(suite, ()):
            yield test, f"{prefix}/{suite}/0.{name}" if kind[0:5] == "TYPED" else f"{prefix}/{test}/0"


def tests_there_are():
    """{name: Where} of the tests of tests/rdma that are built or run."""
    sources, labels = programs()
    siw = left_out_on_siw()
    texts = {path: read(path) for path in files_of_tests() if path.endswith((".cc", ".h", ".py"))}
    for path, text in list(texts.items()):  # a header's tests are in the programs that include it
        if path.endswith(".h"):
            mark = f'#include "{os.path.relpath(path, SOURCE)}"'
            sources[path] = set().union(*(sources[other] for other in texts if mark in texts[other]))
    instances = collections.defaultdict(set)
    for text in texts.values():
        for prefix, suite in re.findall(
                r"INSTANTIATE_(?:TYPED_)?TEST_SUITE_P\(\s*(\w+),\s*(\w+)", text):
            instances[suite].add(prefix)
    found = collections.defaultdict(lambda: Where(False, False, False))

    def add(name, filtered, program):
        device = not labels[program].isdisjoint({"softroce", "providers"})
        here = program in siw and not any(fnmatch.fnmatchcase(filtered, one) for one in siw[program])
        old = found[name]
        found[name] = Where(old.device or device, old.anywhere or not device, old.siw or here)

    for path, text in texts.items():
        for program in sources[path]:
            if path.endswith(".py"):
                case = ""
                for kind, name in re.findall(r"^(class|    def) (\w+)\(", text, re.M):
                    case = name if kind == "class" else case
                    add(f"{case}.{name}", "", program)
            else:
                for name, filtered in in_cpp(text, instances):
                    add(name, filtered, program)
    for case in re.findall(r"\w+\.cc", read(HERE, "compile_fail", "CMakeLists.txt")):
        found[f"compile_fail/{case}"] = Where(False, True, False)
    return dict(found)


# ---- the page


def rows(text, wanted=tuple(COLUMNS)):
    """(line number, section, {column: text}) of each row of the tables with these columns."""
    columns, section = None, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            section = line[3:]
        if not line.startswith("|"):
            columns = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if columns is None:
            columns = cells
        elif columns == list(wanted) and not set(cells[0]) <= set("-:"):
            yield number, section, dict(zip(columns, cells, strict=False)) | {"cells": len(cells)}


def named(cell):
    return [] if cell == NONE else re.findall(r"`([^`]+)`", cell) or [cell]


def siw_of(row, tests):
    """What the column `siw` must say: whether the row's tests run on soft-iWARP too."""
    if row["state"] not in {"SoftRoCE", "hardware"}:
        return NONE
    there = [tests[name].siw for name in named(row["test"]) if name in tests and tests[name].device]
    return "yes" if all(there) else "in part" if any(there) else "no"


def wrong_state(row, tests):
    """Why the state does not fit the tests, or None."""
    there = [tests[name] for name in named(row["test"]) if name in tests]
    if row["state"] == "native" and not all(test.anywhere for test in there):
        return "native, and a test needs a device"
    if row["state"] in {"SoftRoCE", "hardware"} and not any(test.device for test in there):
        return f"{row['state']}, and no test needs a device"
    return None


def problems_of(row, tests):
    if row["cells"] != len(COLUMNS) or not all(row.get(column) for column in COLUMNS):
        yield "a cell is empty or missing"
        return
    state = row["state"]
    if state not in STATES:
        yield f"no such state: {state}"
        return
    if (state in WITH_TEST) != (row["test"] != NONE):
        yield f"{state}, and test is {row['test']}"
    if (state in NOT_THERE) != (row["header"] == NONE):
        yield f"{state}, and header is {row['header']}"
    if state not in SHOWN and row["note"] == NONE:
        yield f"{state}, and it is not said why"
    for header in named(row["header"]):
        if not any(os.path.isfile(os.path.join(place, header)) for place in [*HEADERS, SOURCE]):
            yield f"no such header: {header}"
    for test in named(row["test"]):
        if test not in tests:
            yield f"no such test: {test}"
    for example in named(row["example"]):
        if state in NOT_THERE:
            yield f"{state}, and example is {example}"
        elif not os.path.isfile(os.path.join(EXAMPLES, example)):
            yield f"no such example: {example}"
    if wrong_state(row, tests):
        yield wrong_state(row, tests)
    elif siw_of(row, tests) != row["siw"]:
        yield f"siw: {row['siw']} instead of {siw_of(row, tests)} (parity_test.py --fill)"


def problems(text, tests):
    found, seen = [], set()
    for number, section, row in rows(text):
        found += [f"line {number}: {what}" for what in problems_of(row, tests)]
        key = section, row["capability"]
        if key in seen:
            found.append(f"line {number}: the section has this row twice: {row['capability']}")
        seen.add(key)
    return found


def wrong_sections(text):
    """Which sections of capabilities are missing, in another order, or not one of those wanted."""
    there = list(dict.fromkeys(section for _, section, _ in rows(text)))
    kinds = [section[0] if re.match(r"[A-E]: ", section) else
             section[0] + "+" if re.match(r"[A-E], in its source", section) else section
             for section in there]
    wanted = [*LIBRARIES, *(one + "+" for one in LIBRARIES), LAST]
    return None if kinds == wanted else f"{there}"


def library_of(header):
    return LIBRARY_OF.get(header) or (
        "rkv::rdma_extras" if os.path.isfile(os.path.join(HEADERS[1], header)) else "rkv::rdma")


def wrong_features(text, guide):
    """What the page's rows of state `hardware` and the guide's table do not have in common."""
    waiting, found = collections.defaultdict(set), []
    for number, _, row in rows(text):
        if row.get("state") == "hardware":
            waiting[row["note"].partition(": ")[0]].update(named(row["header"]))
    told = {row["feature"]: row for _, _, row in rows(guide, UNSEEN)}
    found += [f"not in the guide: {feature}" for feature in waiting if feature not in told]
    for feature, row in told.items():
        headers = set(named(row["header"]))
        if headers != waiting.get(feature):
            found.append(f"{feature}: {sorted(headers)} instead of {sorted(waiting.get(feature, ()))}")
        if set(named(row["library"])) != {library_of(header) for header in headers}:
            found.append(f"{feature}: is not in {row['library']}")
    return found


def fill(text, tests):
    lines = text.splitlines()
    for number, _, row in rows(text):
        if row["cells"] == len(COLUMNS):
            row["siw"] = siw_of(row, tests)
            lines[number - 1] = "| " + " | ".join(row[column] for column in COLUMNS) + " |"
    return "\n".join(lines) + "\n"


def lines_of_code(text):
    """Lines that are neither blank nor comment nor include nor using."""
    lines = [line.strip() for line in text.splitlines()]
    return sum(1 for line in lines if line and not line.startswith(("//", "#include", "using ")))


class FiveTasks(unittest.TestCase):
    def test_the_guide_counts_its_programs_right(self):
        rows = re.findall(r"\]\(examples/(\w+\.cc)\) \| (\d+) \| (\d+):", read(GUIDE))
        self.assertEqual(len(rows), 5)
        for name, told, shortest in rows:
            with self.subTest(name):
                self.assertEqual(lines_of_code(read(EXAMPLES, name)), int(told))
                self.assertLessEqual(int(told), int(shortest))

    def test_what_counts_as_a_line(self):
        self.assertEqual(lines_of_code("// no\n\n#include <no>\nusing no;\nint yes;  // or not\n}\n"), 2)


def headers_without_sources():
    """The public headers over rdma-core's that name no manual page and no specification."""
    for place in HEADERS:
        for folder, _, names in os.walk(place):
            for name in names:
                text = read(folder, name)
                top = text.partition("#pragma once")[0]
                if re.search(r"#include <(infiniband|rdma)/", text) and not re.search(
                        r"\w\([37]\)|[Ss]pecification", top):
                    yield name


class Sources(unittest.TestCase):
    def test_each_header_over_verbs_names_them(self):
        self.assertEqual(sorted(headers_without_sources()), [])


class Parity(unittest.TestCase):
    def test_the_page_is_true(self):
        text = read(PAGE)
        self.assertGreaterEqual(len(list(rows(text))), ROWS)
        self.assertEqual(problems(text, tests_there_are()), [])
        self.assertIsNone(wrong_sections(text))

    def test_what_waits_for_hardware_is_in_one_table(self):
        self.assertGreaterEqual(len(list(rows(read(GUIDE), UNSEEN))), FEATURES)
        self.assertEqual(wrong_features(read(PAGE), read(GUIDE)), [])

    def test_a_table_that_disagrees_is_noticed(self):
        page = self.HEAD + "| a | `device.h` | `Devices.Are` | - | hardware | yes | warp: b |\n"
        head = "| " + " | ".join(UNSEEN) + " |\n|" + "---|" * len(UNSEEN) + "\n"
        good = "| warp | `device.h` | `rkv::rdma` | b |\n"
        self.assertEqual(wrong_features(page, head + good), [])
        for guide, problem in (
                (head, "not in the guide: warp"),
                (head + good.replace("warp", "woof"), "woof: ['device.h'] instead of []"),
                (head + good.replace("device.h", "srq.h"), "warp: ['srq.h'] instead of ['device.h']"),
                (head + good.replace("::rdma", "::client"), "warp: is not in `rkv::client`"),
                (head + good + good.replace("warp", "efa"), "efa: ['device.h'] instead of []")):
            self.assertIn(problem, wrong_features(page, guide))

    def test_where_tests_run(self):
        tests = tests_there_are()
        for name, where in (
                ("Messages.ArriveWithLengthAndContents", Where(True, False, True)),
                ("Messages.ImmediateDataKeepsItsByteOrder", Where(True, False, False)),
                ("PreparedQueuePairs.AgreeOnMtuAndReadDepth", Where(True, False, False)),
                ("ReadOnlyRegion.RefusesEveryChange", Where(True, False, False)),
                ("ExtendedQueues.ReadTheFieldsOfAMessage", Where(True, False, False)),
                ("ExtendedQueues.GiveEachCompletionOnceInOrder", Where(True, False, True)),
                ("Scopes.WaitForWhatIsOutstandingAndGiveBackTheValue", Where(True, False, False)),
                ("TransportScenarios.ALongRandomTalk", Where(True, True, False)),
                ("PathsOf.AHandshakeHaveTheirDefaults", Where(True, False, False)),
                ("AckTimeout.RoundsUpAtEveryStep", Where(False, True, False)),
                ("DeadlinesIn.CountFromNowOnTheSteadyClock", Where(False, True, False)),
                ("SendSlots.AgreeWithADevice", Where(False, True, False)),
                ("Examples.test_devinfo", Where(True, False, False)),
                ("Linkage.test_nothing_of_rdma_core_is_linked", Where(False, True, False)),
                ("compile_fail/submit_twice.cc", Where(False, True, False))):
            self.assertEqual(tests.get(name), where, name)

    def test_each_test_left_out_on_soft_iwarp_is_there(self):
        tests, siw = tests_there_are(), left_out_on_siw()
        self.assertGreaterEqual(sum(len(patterns) for patterns in siw.values()), PATTERNS)
        names = {f"x/{name}/0" for name in tests} | set(tests)
        for pattern in (pattern for patterns in siw.values() for pattern in patterns):
            self.assertTrue(fnmatch.filter(names, pattern), pattern)

    TESTS = {"Devices.Are": Where(True, False, True), "Queues.Are": Where(True, False, False),
             "Values.Are": Where(False, True, False), "Both.Are": Where(True, True, False)}
    HEAD = "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS) + "\n"

    def test_what_is_wrong_is_noticed(self):
        for row, problem in (
                ("| a | `device.h` | `Devices.Are` | - | SoftRoCE | yes | - |", None),
                ("| a | `device.h` | `Devices.Are`, `Queues.Are` | - | SoftRoCE | in part | - |", None),
                ("| a | `device.h` | `Queues.Are`, `Values.Are` | - | hardware | no | b |", None),
                ("| a | `device.h` | `Values.Are`, `Both.Are` | - | native | - | - |", None),
                ("| a | - | - | - | missing | - | b |", None),
                ("| a | - | - | - | not wanted | - | b |", None),
                ("| a | `device.h` | - | `ud.cc` | untested | - | b |", None),
                ("| a | - | - | - | untested | - | b |", "header is -"),
                ("| a | `device.h` | `Devices.Are` | | SoftRoCE | yes | b |", "empty"),
                ("| a | `device.h` | `Devices.Are` | - | SoftRoCE | yes |", "empty"),
                ("| a | `device.h` | `Devices.Are` | - | SoftRoCE | yes | b | c |", "empty"),
                ("| a | `device.h` | `Devices.Are` | - | SoftRoCE | yes | b |", None),
                ("| a | - | - | - | not wanted | - | - |", "not said why"),
                ("| a | `nowhere.h` | `Values.Are` | - | native | - | b |", "no such header: nowhere.h"),
                ("| a | `device.h` | `Values.Were` | - | native | - | b |", "no such test: Values.Were"),
                ("| a | `device.h` | - | - | hardware | - | b |", "test is -"),
                ("| a | `device.h` | `Devices.Are` | - | untested | - | b |", "test is `Devices.Are`"),
                ("| a | - | `Devices.Are` | - | missing | - | b |", "test is `Devices.Are`"),
                ("| a | - | `Devices.Are` | - | not wanted | - | b |", "test is `Devices.Are`"),
                ("| a | `device.h` | - | - | missing | - | b |", "header is `device.h`"),
                ("| a | `device.h` | - | - | not wanted | - | b |", "header is `device.h`"),
                ("| a | `device.h` | `Values.Are` | - | done | - | b |", "no such state"),
                ("| a | `device.h` | `Values.Are` | `none.cc` | native | - | b |", "no such example"),
                ("| a | - | - | `ud.cc` | missing | - | b |", "example is ud.cc"),
                ("| a | `device.h` | `Devices.Are` | - | native | - | b |", "needs a device"),
                ("| a | `device.h` | `Values.Are` | - | SoftRoCE | no | b |", "no test needs a device"),
                ("| a | `device.h` | `Devices.Are` | - | SoftRoCE | no | b |", "siw: no instead of yes"),
                ("| a | `device.h` | `Queues.Are` | - | SoftRoCE | yes | b |", "siw: yes instead of no"),
                ("| a | `device.h` | `Values.Are` | - | native | yes | b |", "siw: yes instead of -")):
            found = problems(self.HEAD + row, self.TESTS)
            if problem is None:
                self.assertEqual(found, [], row)
            else:
                self.assertIn(problem, " ".join(found), row)
        twice = self.HEAD + 2 * "| a | - | - | - | missing | - | b |\n"
        self.assertIn("twice", " ".join(problems(twice, self.TESTS)))

    def test_the_column_of_soft_iwarp_is_written(self):
        row = "| a | `device.h` | `Devices.Are` | - | SoftRoCE | no | - |"
        self.assertEqual(problems(fill(self.HEAD + row, self.TESTS), self.TESTS), [])

    def test_sections_that_are_missing_are_noticed(self):
        table = "\n" + self.HEAD + "| a | - | - | - | missing | - | b |\n\n"
        titles = [*(f"{one}: x" for one in LIBRARIES), *(f"{one}, in its source" for one in LIBRARIES),
                  LAST]
        whole = [f"## {title}\n{table}" for title in titles]
        self.assertIsNone(wrong_sections("".join(whole)))
        for i in range(len(whole)):
            self.assertIsNotNone(wrong_sections("".join(whole[:i] + whole[i + 1:])), titles[i])
            empty = [*whole[:i], f"## {titles[i]}\n", *whole[i + 1:]]
            self.assertIsNotNone(wrong_sections("".join(empty)), titles[i])
        self.assertIsNotNone(wrong_sections("".join([*whole, f"## More\n{table}"])))
        self.assertIsNotNone(wrong_sections("".join([whole[1], whole[0], *whole[2:]])))


if __name__ == "__main__":
    if sys.argv[1:] == ["--fill"]:
        filled = fill(read(PAGE), tests_there_are())
        with open(PAGE, "w", encoding="utf-8") as page:
            page.write(filled)
    else:
        sys.exit(unittest.main(verbosity=2))
