#!/usr/bin/python3
"""Passes ctest's output on, line by line, without the cases of GoogleTest programs that passed.

Of a program that failed ctest shows everything, most of which is about cases that did not. A case
without an end (a crash, a time limit) stays, with what it printed, and so does what a program says
once about how to repeat all of it."""

import re
import sys

CTEST = re.compile(r" *\d+/\d+ Test |    +Start +\d+: ")
BEGIN = "[ RUN      ]"
PASSED = "[       OK ]"
ENDED = "[  FAILED  ]", "[  SKIPPED ]"
REPEAT = "repeat with "


def only_failures(lines):
    held = None  # the lines of the case that runs
    for line in lines:
        if held is not None and line.startswith(REPEAT):
            yield line
        elif held is not None and line.startswith(PASSED):
            held = None
        elif held is not None and not line.startswith((BEGIN, *ENDED)) and not CTEST.match(line):
            held.append(line)
        else:
            yield from held or ()
            held = [line] if line.startswith(BEGIN) else None
            if held is None and not line.startswith("[----------]"):
                yield line
    yield from held or ()


if __name__ == "__main__":
    for passed_on in only_failures(sys.stdin):
        print(passed_on, end="", flush=True)
