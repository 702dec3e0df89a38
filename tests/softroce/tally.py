#!/usr/bin/python3
"""Counts what one ctest run did: tally.py [--skip-is-failure] JUNIT GTEST_DIR

Prints "PASSED FAILED SKIPPED" on stdout and a line for each failure and skip on stderr.

ctest sees a GoogleTest program as one test. Where the program left its own report in GTEST_DIR
(GTEST_OUTPUT=xml:GTEST_DIR/), its test cases are counted instead. Tests that share a program, each
with cases of its own, write over each other's report, which has the program's name; theirs are
counted by what GoogleTest printed at its end (ctest keeps that with --test-output-truncation head).
A program that crashed has neither and counts as one failure. A run without any test is one failure
as well: a mistyped label must not look like success."""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = range(3)


def outcome_of_entry(entry):
    status = entry.get("status")
    if status == "run":
        return PASSED
    if status == "disabled":
        return SKIPPED
    # "notrun" is a wish of the test (SKIP_RETURN_CODE and the like) or a missing program.
    skipped = entry.find("skipped")
    reason = "" if skipped is None else skipped.get("message", "")
    return SKIPPED if status == "notrun" and reason.startswith("SKIP_") else FAILED


def outcome_of_case(case):
    if case.find("failure") is not None:
        return FAILED
    if case.get("result") == "skipped" or case.get("status") == "notrun":
        return SKIPPED
    return PASSED


def cases_printed(name, text):
    """(name, outcome) of each case, by the summary that GoogleTest ends with; None without one."""
    summary = text[max(text.rfind("Global test environment tear-down"), 0):]
    passed = re.search(r"^\[  PASSED  \] (\d+) tests?\.", summary, re.MULTILINE)
    if passed is None:
        return None
    cases = [(name, PASSED)] * int(passed.group(1))
    for word, outcome in ("FAILED ", FAILED), ("SKIPPED", SKIPPED):
        listed = re.findall(rf"^\[  {word} \] (\S+\.\S+?)(?:,|$)", summary, re.MULTILINE)
        cases += [(f"{name}: {case}", outcome) for case in listed]
    return cases


def cases_of(entry, gtest_dir):
    """(name, outcome) of everything one ctest entry stands for."""
    name, outcome = entry.get("name"), outcome_of_entry(entry)
    report = os.path.join(gtest_dir, name + ".xml")
    if os.path.exists(report):
        cases = [(f"{name}: {case.get('classname')}.{case.get('name')}", outcome_of_case(case))
                 for case in ElementTree.parse(report).iter("testcase")
                 if case.get("result") != "suppressed"]  # DISABLED_: not meant to run
    else:
        cases = cases_printed(name, entry.findtext("system-out") or "")
    if cases is None:
        return [(name, outcome)]
    if not cases:  # a filter that fits nothing, as like as not
        return [(f"{name}: no test was run", FAILED)]
    if outcome == FAILED and all(result != FAILED for _, result in cases):
        cases.append((f"{name}: ended badly after its test cases", FAILED))
    return cases


def read_cases(junit, gtest_dir):
    try:
        entries = list(ElementTree.parse(junit).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        return [(f"ctest left no report ({error})", FAILED)]
    cases = [case for entry in entries for case in cases_of(entry, gtest_dir)]
    return cases or [("no test was run", FAILED)]


def main(arguments):
    skip_is_failure = arguments[0] == "--skip-is-failure"
    cases = read_cases(*arguments[-2:])
    for name, outcome in cases:
        if outcome != PASSED:
            print("FAILED" if outcome == FAILED else "skipped", name, file=sys.stderr)
    counts = [sum(outcome == kind for _, outcome in cases) for kind in (PASSED, FAILED, SKIPPED)]
    if skip_is_failure:
        counts[FAILED] += counts[SKIPPED]
    print(*counts)


if __name__ == "__main__":
    main(sys.argv[1:])
