#!/usr/bin/env python3
"""How often a device is flushed for one sync, counted at a device of the test's own: ext4 in a file in
memory. A log that writes over a zeroed file takes one flush, one that grows takes two, as the journal
commits too. Takes root, for the mount."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BIN = sys.argv.pop(1)


def run(*command):
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Flushes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.image = tempfile.NamedTemporaryFile(prefix="rkv-flushes-", dir="/dev/shm")
        cls.image.truncate(512 << 20)
        run("/sbin/mkfs.ext4", "-q", "-F", cls.image.name)
        cls.mount = tempfile.TemporaryDirectory(prefix="rkv-flushes-")
        run("mount", "-o", "loop", cls.image.name, cls.mount.name)

    @classmethod
    def tearDownClass(cls):
        run("umount", cls.mount.name)
        cls.mount.cleanup()
        cls.image.close()

    def flushes(self, way, **flags):
        with tempfile.TemporaryDirectory(dir=self.mount.name) as data:
            command = [os.path.join(BIN, "bench_disk"), "--phase", "log", "--directory", data, "--way", way,
                       "--writers", "4", "--slices", "3", "--slice-ms", "300"]
            for flag, value in flags.items():
                command += [f"--{flag.replace('_', '-')}", str(value)]
            told = json.loads(run(*command))
        self.assertGreater(told["groups"], 20)
        return told["flushes_per_sync"]

    def test_a_zeroed_file_takes_one(self):
        for under_way in (1, 2):
            self.assertLess(self.flushes("zeroed", under_way=under_way), 1.2)

    # The canary: where two are taken, two are counted.
    def test_a_growing_file_takes_two(self):
        self.assertGreater(self.flushes("growing"), 1.8)

    def test_the_log_of_rocksdb_takes_two(self):
        self.assertGreater(self.flushes("rocksdb"), 1.8)


if __name__ == "__main__":
    unittest.main()
