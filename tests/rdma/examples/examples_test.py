#!/usr/bin/env python3
"""The verbs library's examples, on real verbs: each succeeds and prints the expected lines.

    tests/rdma/examples/examples_test.py BUILD [unittest's arguments]     BUILD: a build directory
"""

import os
import re
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

# The output of each, line by line, as regular expressions; for devinfo only some lines.
PRINTED = {
    "asio_loop": ["read one, then a timer", "read two, then a timer", "echoed 6 bytes"],
    "atomics": [
        "tickets: 0 and 1",
        "tickets: 2 and 3",
        "the first client owns it, the second came too late",
        "in the server's memory: 4 tickets, owner 1",
    ],
    "batching": [
        r"32 READs, 1 doorbell, 1 completion \(of request 31\): all bytes there",
        "a dropped batch: 0 completions",
        'the message with 8192 found "a record"',
    ],
    "channel_scope": [
        "read back: written",
        "16 READs at a time, 0 after the scope",
        "a message of 8 bytes",
        "timed out, 1 cut off, 0 outstanding, the channel is broken",
    ],
    "connection_manager": [
        "server: a client is there",
        'client: read "read me without asking", 16 READs may be outstanding',
        "server: the client has left",
    ],
    "coroutines": ['server got "ping" number 1', 'client got "pong" number 2'],
    "datagram_service": [
        'client: the service says "welcome"',
        'server got "question"',
        'client got "answer"',
    ],
    "event_loop": [f"connection {n}: 4 messages" for n in range(8)],
    "loopback": ["received: hello", "read back: written"],
    "one_sided": ["read back: written"],
    "out_of_band": ["received: hello"],
    "ping_pong": ['server got "ping"', 'client got "pong"'],
    "srq": [
        "9 messages of 3 connections out of one pool",
        "limit reached: fewer than 8 buffers left",
        "refilled with 9",
    ],
    "stream_echo": [f"{name}: 262144 bytes written, 262144 echoed, 262144 read: the same"
                    for name in ("send_receive", "credit_ring")],
    "ud": [
        r"a datagram is at most \d+ bytes long",
        'server got "question"',
        'client got "answer"',
    ],
}
DEVINFO = [
    r"[1-9]\d* devices?",
    r"\w+: InfiniBand channel adapter.*, GUID [0-9a-f]{4}(:[0-9a-f]{4}){3}",
    r"  port 1: active, Ethernet, MTU \d+ of \d+, \S+ Gb/s",
    r"  READs outstanding: \d+ out, \d+ in; atomics: .+",
    r"  GID \d+ of port 1: \S+, RoCE v2, \w+  <- taken by default",
]


def run(program, *arguments):
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.splitlines(), done.stderr


class Examples(unittest.TestCase):
    def check(self, program, expected, *arguments):
        status, lines, errors = run(program, *arguments)
        self.assertEqual((status, errors), (0, ""), lines)
        self.assertEqual(len(lines), len(expected), lines)
        # connection_manager, datagram_service: two threads print.
        for line, pattern in zip(sorted(lines), sorted(expected), strict=True):
            self.assertRegex(line, f"^{pattern}$")

    def test_each_prints_what_it_should(self):
        for name, expected in PRINTED.items():
            with self.subTest(name):
                self.check(example(name), expected)

    def test_devinfo(self):
        status, lines, errors = run(example("devinfo"))
        self.assertEqual((status, errors), (0, ""), lines)
        for pattern in DEVINFO:
            self.assertTrue(any(re.fullmatch(pattern, line) for line in lines), (pattern, lines))

    def test_ping_pong_of_two_programs(self):
        """By address: on iWARP too (rdma_examples_providers_test)."""
        address = os.environ["RKV_RDMA_ADDRESS"] + ":7471"
        with subprocess.Popen([example("ping_pong"), "server", address], stdout=subprocess.PIPE, text=True) as server:
            try:
                end = time.monotonic() + 20
                while True:  # until the server listens
                    status, lines, errors = run(example("ping_pong"), "client", address)
                    if status == 0 or server.poll() is not None or time.monotonic() > end:
                        break
                self.assertEqual((status, lines, errors), (0, ['client got "pong"'], ""))
                self.assertEqual(server.communicate(timeout=20)[0], 'server got "ping"\n')
                self.assertEqual(server.returncode, 0)
            finally:
                server.kill()

    def test_stream_echo_over_one_transport(self):
        for name, line in zip(("send_receive", "credit_ring"), PRINTED["stream_echo"],
                              strict=True):
            with self.subTest(name):
                self.check(example("stream_echo"), [line], name)
        status, lines, errors = run(example("stream_echo"), "carrier_pigeon")
        self.assertEqual((status, lines), (1, []))
        self.assertIn("send_receive or credit_ring", errors)

    def test_efa_says_what_is_missing(self):
        if not os.path.exists(example("efa")):
            self.skipTest("the example is built only if libefa is installed")
        status, lines, errors = run(example("efa"))
        self.assertEqual((status, lines), (1, []))
        self.assertRegex(errors, r"^efadv_query_device: .*does not support the verb\n$")

    def test_with_rdma_core_found_at_run_time(self):
        """rdma/core/linkage, with the libraries installed."""
        program = os.path.join(BUILD, "tests", "loopback_dlopen")
        if not os.path.exists(program):
            self.skipTest("loopback_dlopen is not in this build")
        self.assertNotIn("libibverbs", subprocess.check_output(["readelf", "-d", program], text=True))
        self.check(program, PRINTED["loopback"])

    def test_every_example_is_run(self):
        there = {name.removesuffix(".cc") for name in os.listdir(os.path.join(SOURCE, "rdma", "examples"))
                 if name.endswith(".cc")}
        self.assertEqual(there, {*PRINTED, "devinfo", "efa"})


def example(name):
    return os.path.join(BUILD, "bin", f"example_rdma_{name}")


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
