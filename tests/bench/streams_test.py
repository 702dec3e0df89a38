#!/usr/bin/env python3
"""The streams of bench_verbs_streams on real verbs, tiny: all bytes that were sent have come. No time
is judged. On iWARP, which has no immediate data and no connections by endpoints, the ways that need
them say so.

    tests/bench/streams_test.py BIN [unittest's arguments]     BIN: where the programs are
"""

import json
import os
import subprocess
import sys
import unittest

# The kernel's word for iWARP's adapters.
with open(f"/sys/class/infiniband/{os.environ['RKV_RDMA_DEVICE']}/node_type", encoding="ascii") as kind:
    IS_IWARP = "RNIC" in kind.read()
NOT_ON_IWARP = ("raw", "credit_ring")
# send_receive counts no receives, and on iWARP a message without one ends the connection.
PHASES = ("tcp",) if IS_IWARP else ("raw", "send_receive", "credit_ring", "tcp")


class Streams(unittest.TestCase):
    def test_what_is_sent_comes(self):
        # 1000: messages of no round size. 65536: more bytes than messages fit into a small ring.
        for phase in PHASES:
            for size, count in (1000, 300), (65536, 40):
                with self.subTest(phase, size=size):
                    report = self.stream(phase, size, count * size)
                    self.assertEqual((report["bytes_sent"], report["bytes_received"]),
                                     (count * size, count * size))
                    self.assertGreaterEqual(report["writes"], count)
                    self.assertGreaterEqual(report["reads"], count)  # at most `size` each
                    self.assertGreater(report["seconds"], 0)

    def test_what_the_device_lacks_is_one_sentence(self):
        for phase in NOT_ON_IWARP if IS_IWARP else ():
            with self.subTest(phase):
                done = self.run_it(phase, 1000, 3000)
                self.assertEqual((done.returncode, done.stdout), (4, ""))
                self.assertRegex(done.stderr, r"\A[^\n]*(iWARP|not supported)[^\n]*\n\Z")

    def run_it(self, phase, size, total):
        return subprocess.run(
            [os.path.join(BIN, "bench_verbs_streams"), "--phase", phase, "--bytes", str(size),
             "--total", str(total), "--depth", "3", "--address", os.environ["RKV_RDMA_ADDRESS"]],
            check=False, capture_output=True, text=True, timeout=60)

    def stream(self, phase, size, total):
        done = self.run_it(phase, size, total)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main(verbosity=2)
