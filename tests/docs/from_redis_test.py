#!/usr/bin/env python3
"""The commands of client/FROM_REDIS.md that take data along, from a Redis of its own.

    tests/docs/from_redis_test.py BUILD [unittest's arguments]     BUILD: a build directory
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from programs import Server, run  # noqa: E402

STRINGS = {b"plain": b"hello", b"empty": b"", b"line": b"ends\n",
           b'k "quoted" \\ \t key': bytes(range(256)) + b'\\\\ \\" \\a \\\\a \\b \\n \\x41 \\@counter',
           "größe".encode(): b"x" * 200000}


class FromRedis(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="rkv-redis-")
        self.addCleanup(shutil.rmtree, self.scratch)
        socket = os.path.join(self.scratch, "redis.sock")
        redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--save", ""],
                                 stdout=subprocess.DEVNULL, cwd=self.scratch)
        self.addCleanup(redis.wait, 60)
        self.addCleanup(redis.terminate)
        server = Server(os.path.join(BUILD, "bin", "kvserver"), self.scratch)
        self.addCleanup(server.stop)
        # The page's redis-cli finds a Redis at its usual place; here it is another one.
        tools = os.path.join(self.scratch, "tools")
        os.mkdir(tools)
        with open(os.path.join(tools, "redis-cli"), "w", encoding="utf-8") as script:
            script.write(f'#!/bin/sh\nexec {shutil.which("redis-cli")} -s {socket} "$@"\n')
        os.chmod(script.name, 0o755)
        self.environment = dict(os.environ, KVCLIENT_SERVER=server.address, KVCLIENT_TRANSPORT="shm",
                                PATH=f"{tools}:{os.path.join(BUILD, 'bin')}:{os.environ['PATH']}")
        end = time.monotonic() + 60
        while subprocess.run(["redis-cli", "ping"], env=self.environment, check=False,
                             capture_output=True).stdout != b"PONG\n":
            self.assertLess(time.monotonic(), end, "no Redis")
            time.sleep(0.01)

    def call(self, *command, given=None):
        return subprocess.run(command, env=self.environment, input=given, check=True,
                              stdout=subprocess.PIPE).stdout

    def test_strings_times_to_live_and_counters_arrive(self):
        for key, value in STRINGS.items():
            self.call("redis-cli", "-x", "set", key, given=value)
        self.call("redis-cli", "set", "session", "s", "pxat", "4000000000123")
        self.call("redis-cli", "incrby", "visits:1", "41")
        self.call("redis-cli", "lpush", "list", "a")
        with open(os.path.join(HERE, "..", "..", "client", "FROM_REDIS.md"), encoding="utf-8") as page:
            commands, counters = re.findall(r"(?s)```sh\n(.*?)```", page.read())
        *conversion, load = commands.splitlines(keepends=True)
        run("bash", "-e", "-o", "pipefail", "-c", "".join([*conversion, counters, load]),
            env=self.environment, cwd=self.scratch)
        for key, value in STRINGS.items():
            self.assertEqual(self.call("kvclient", "get", key), value)
        self.assertIn(b'"expires_at_ms":4000000000123', self.call("kvclient", "--output", "json", "get", "session"))
        self.assertEqual(self.call("kvclient", "incr", "visits:1"), b"42\n")
        self.assertEqual(subprocess.run(["kvclient", "get", "list"], env=self.environment, check=False,
                                        stderr=subprocess.DEVNULL).returncode, 1)


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
