#!/usr/bin/env python3
"""The client's examples print what they should, twice over the same server.

    tests/embedding/examples_test.py BUILD [unittest's arguments]     BUILD: a build directory
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from programs import Server, run  # noqa: E402

PRINTED = {
    "quick_start": "greeting: hello\nwith the version of before: conflict\n",
    "counters": "tickets: 10, then 9\ntickets are no longer 10\nvisits: 7\n",
    "event_loop": "100 tasks added 100, and 100 is stored\n",
    "asio_loop": "greeting, after a timer: hello\n",
    "c_quick_start": "greeting: hello\nwith the version of before: conflict\n",
    "c_event_loop": "100 added, 0 failed\n",
    "bulk_load": "put: 10000, failed: 0\ncompared equal: 10000\n",
}


class Examples(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="rkv-examples-")
        self.addCleanup(shutil.rmtree, self.scratch)

    def example(self, name):
        return os.path.join(BIN, f"example_{name}")

    def run_all(self, *arguments):
        server = Server(os.path.join(BIN, "kvserver"), self.scratch, *arguments)
        try:
            for _ in range(2):
                for name, printed in PRINTED.items():
                    self.assertEqual(run(self.example(name), server.address), printed)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_in_memory(self):
        self.run_all()

    def test_on_disk(self):
        self.run_all("--data-dir", os.path.join(self.scratch, "data"))

    def test_without_a_server_each_says_so(self):
        os.environ["RKV_SHM_DIR"] = self.scratch
        for name in PRINTED:
            done = subprocess.run([self.example(name), "127.0.0.1:7471"], check=False,
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""), name)
            self.assertRegex(done.stderr, r"^connect: .+\n$")

    def test_a_number_that_is_none(self):
        done = subprocess.run([self.example("bulk_load"), "127.0.0.1:7471", "many"], check=False,
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr),
                         (2, "RECORDS must be a number from 1, not 'many'\n"))

    def test_the_quick_start_is_short(self):
        with open(os.path.join(HERE, "..", "..", "client", "examples", "quick_start.cc"),
                  encoding="utf-8") as source:
            self.assertLess(len(source.readlines()), 40)


if __name__ == "__main__":
    BIN = os.path.join(os.path.abspath(sys.argv.pop(1)), "bin")
    unittest.main(verbosity=2)
