#!/usr/bin/env python3
"""What `./run` does about Debian's packages that are missing, with scripts that stand for apt and dpkg.

    tests/packages/needs_test.py [unittest's arguments]
"""

import os
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FRONT_DOOR = os.path.join(HERE, "..", "..", "run")
STAND_INS = {
    # Everything is installed but what MISSING lists.
    "dpkg-query": 'for name in "$@"; do case " $MISSING " in *" $name "*) ;; *) echo "installed $name" ;; esac; done; exit 1',
    "apt-cache": 'case " $KNOWN " in *" $2 "*) echo "Package: $2" ;; esac',
    # Another apt holds the lock of the lists for the first LOCKED times.
    "apt-get": 'echo "apt-get $*" >>"$SCRATCH/calls"\n'
               'case $* in *update) echo >>"$SCRATCH/updates"\n'
               '[ "$(wc -l <"$SCRATCH/updates")" -gt "$LOCKED" ] || { echo "E: $PROBLEM" >&2; exit 100; } ;; esac',
    "sudo": 'exec "$@"',
    "sleep": "exit 0",
}
LOCK = "Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"


class Needs(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="rkv-needs-")
        self.addCleanup(shutil.rmtree, self.scratch)
        for name, script in STAND_INS.items():
            path = os.path.join(self.scratch, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n{script}\n")
            os.chmod(path, 0o755)

    def install(self, missing, known="", locked=0, problem=LOCK):
        """(exit status, what is said, what apt-get is told) by ./run install-deps."""
        done = subprocess.run(
            [FRONT_DOOR, "install-deps"], check=False, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(os.environ, PATH=f"{self.scratch}:{os.environ['PATH']}", SCRATCH=self.scratch,
                     MISSING=missing, KNOWN=known, LOCKED=str(locked), PROBLEM=problem))
        calls = os.path.join(self.scratch, "calls")
        if not os.path.exists(calls):
            return done.returncode, done.stdout, []
        with open(calls, encoding="utf-8") as file:
            return done.returncode, done.stdout, file.read().splitlines()

    def test_what_is_installed_is_not_asked_for(self):
        self.assertEqual(self.install(""), (0, "", []))

    def test_says_what_it_installs_and_waits_for_the_lock_of_dpkg(self):
        status, said, calls = self.install("valgrind spin", known="valgrind spin")
        self.assertEqual(status, 0, said)
        self.assertIn("installing on this machine, with what they depend on: spin valgrind", said)
        self.assertEqual(len(calls), 2)
        self.assertRegex(calls[1], r"DPkg::Lock::Timeout=[1-9].* install .* spin valgrind$")

    def test_of_two_names_one_is_enough(self):
        self.assertEqual(self.install("libelf1"), (0, "", []))
        self.assertEqual(self.install("libelf1t64"), (0, "", []))

    def test_of_two_names_that_is_taken_which_apt_has(self):
        for known in "libelf1", "libelf1t64":
            _, said, calls = self.install("libelf1 libelf1t64", known=known)
            self.assertTrue(calls[-1].endswith(f" {known}"), said)

    def test_another_apt_that_reads_lists_is_waited_for(self):
        status, said, calls = self.install("spin", known="spin", locked=3)
        self.assertEqual(status, 0, said)
        self.assertEqual(said.count("another apt holds the lock"), 1)
        self.assertEqual(len(calls), 5)

    def test_any_other_failure_of_apt_ends_it(self):
        status, said, calls = self.install("spin", known="spin", locked=3, problem="no network")
        self.assertNotEqual(status, 0)
        self.assertIn("no network", said)
        self.assertIn("cannot install spin", said)
        self.assertEqual(len(calls), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
