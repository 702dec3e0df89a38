#!/usr/bin/env python3
"""The streams of bench_verbs_streams on real verbs, tiny: all bytes that were sent have come. No time
is judged.

    tests/bench/streams_test.py BIN [unittest's arguments]     BIN: where the programs are
"""

import json
import os
import subprocess
import sys
import unittest


class Streams(unittest.TestCase):
    def test_what_is_sent_comes(self):
        # 1000: messages of no round size. 65536: more bytes than messages fit into a small ring.
        for phase in "raw", "send_receive", "credit_ring", "read_ring", "tcp":
            for size, count in (1000, 300), (65536, 40):
                with self.subTest(phase, size=size):
                    report = self.stream(phase, size, count * size)
                    self.assertEqual((report["bytes_sent"], report["bytes_received"]),
                                     (count * size, count * size))
                    self.assertGreaterEqual(report["writes"], count)
                    self.assertGreaterEqual(report["reads"], count)  # at most `size` each
                    self.assertGreater(report["seconds"], 0)

    def stream(self, phase, size, total):
        done = subprocess.run(
            [os.path.join(BIN, "bench_verbs_streams"), "--phase", phase, "--bytes", str(size),
             "--total", str(total), "--depth", "3"],
            check=False, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main(verbosity=2)
