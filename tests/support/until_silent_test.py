#!/usr/bin/env python3
"""What every test is run by: until_silent_test.py PROGRAM."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest


def run(*command, seconds="60"):
    return subprocess.run([PROGRAM, *command], check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "RKV_SILENT_SECONDS": seconds})


class UntilSilent(unittest.TestCase):
    def test_output_and_status_come_through(self):
        ended = run("sh", "-c", "echo one; echo two >&2; exit 7")
        self.assertEqual((ended.returncode, ended.stdout), (7, "one\ntwo\n"))

    def test_what_prints_goes_on(self):
        ended = run("sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done", seconds="2")
        self.assertEqual((ended.returncode, ended.stdout), (0, "1\n2\n3\n4\n5\n6\n"))

    def test_what_prints_nothing_is_ended_with_its_children(self):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            # One in its group, and one in a session of its own.
            command = """sleep 1000 & echo $!
                setsid sh -c 'echo $$ >"$0".new && mv "$0".new "$0"; sleep 1000' "$0" &
                until [ -e "$0" ]; do echo .; sleep 0.1; done; cat "$0"; wait"""
            ended = run("sh", "-c", command, os.path.join(scratch, "pid"), seconds="1")
        self.assertLess(time.monotonic() - begun, 500)
        self.assertEqual(ended.returncode, 124)
        self.assertIn("nothing was printed for 1 s", ended.stdout)
        children = re.findall(r"^\d+$", ended.stdout, re.MULTILINE)
        self.assertEqual(len(children), 2)
        for child in children:
            self.assertRaises(ProcessLookupError, os.kill, int(child), 0)

    def test_one_that_is_left_behind_and_prints_does_not_delay_the_end(self):
        ended = run("sh", "-c", "yes & echo first $!")
        self.assertEqual(ended.returncode, 0)
        os.kill(int(re.search(r"first (\d+)", ended.stdout)[1]), signal.SIGKILL)

    def test_an_orphan_that_ends_is_gone(self):
        ended = run("bash", "-c", "child=$(sleep 0.1 >/dev/null & echo $!); while kill -0 $child; do sleep 0.1; done")
        self.assertEqual(ended.returncode, 0)

    def test_no_output_is_lost(self):
        for _ in range(50):
            ended = run("sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo; echo last")
            self.assertEqual(ended.stdout, "x" * 300000 + "\nlast\n")

    def test_a_child_that_is_left_behind_does_not_delay_the_end(self):
        ended = run("sh", "-c", "sleep 1000 & echo $!")
        self.assertEqual(ended.returncode, 0)
        os.kill(int(ended.stdout), signal.SIGKILL)

    def test_the_signal_that_ended_a_command_is_told(self):
        ended = run("sh", "-c", "kill -SEGV $$")
        self.assertEqual(ended.returncode, 128 + signal.SIGSEGV)
        self.assertIn(f"signal {signal.SIGSEGV.value}", ended.stdout)

    def test_wrong_arguments(self):
        for seconds in "", "0", "x", "9999999":
            ended = run("true", seconds=seconds)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertIn("usage", ended.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
