#!/usr/bin/env python3
"""Programs that find rdma-core at run time (rdma/core/linkage): the table has every called verb,
and the store runs where rdma-core is not installed.

    tests/rdma/core/linkage/linkage_test.py BUILD [unittest's arguments]     BUILD: a build directory
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "support"))
from programs import Server, run  # noqa: E402

FORWARD = "core/linkage/librkv_forward.a"
VERB = re.compile(r"^_?ibv_|^rdma_")


def symbols(kind, archive):
    """The verbs in a library's objects, by kind: `undefined` (called) or `defined`."""
    listed = run("nm", "--format=posix", f"--{kind}-only", os.path.join(BUILD, "rdma", archive))
    names = {line.split()[0] for line in listed.splitlines() if len(line.split()) > 1}
    return {name for name in names if VERB.match(name)}


class Linkage(unittest.TestCase):
    def test_the_table_has_every_function_that_is_called(self):
        called = set().union(*(symbols("undefined", archive)
                               for archive in ("core/librkv_verbs.a", "librkv_rdma.a")))
        self.assertIn("ibv_create_qp", symbols("defined", FORWARD))
        self.assertIn("rdma_connect", called)
        self.assertEqual(called - symbols("defined", FORWARD), set(),
                         "missing in rdma/core/linkage/functions.h")

    def test_the_extras_call_no_function_of_rdma_core(self):
        """Their shared library would not find it: librkv hides the functions of its table."""
        self.assertEqual(symbols("undefined", "extras/librkv_verbs_extras.a"), set())

    def test_nothing_of_rdma_core_is_linked(self):
        for name in "kvserver", "kvclient":
            needed = run("readelf", "-d", program(name))
            self.assertIn("libc.so", needed)
            self.assertNotRegex(needed, "libibverbs|librdmacm")
            self.assertRegex(run("readelf", "-d", os.path.join(BUILD, "bin", name)), "libibverbs")

    def test_the_store_runs_without_rdma_core(self):
        scratch = tempfile.mkdtemp(prefix="rkv-linkage-")
        self.addCleanup(shutil.rmtree, scratch)
        os.environ["LD_PRELOAD"] = os.path.join(BUILD, "tests", "libhide_rdma_core.so")
        self.addCleanup(os.environ.pop, "LD_PRELOAD")
        server = Server(program("kvserver"), scratch)
        self.addCleanup(server.stop)
        client = program("kvclient"), "--server", server.address
        run(*client, "put", "greeting", "hello")
        self.assertEqual(run(*client, "get", "greeting"), "hello")
        told = subprocess.run([client[0], "doctor", *client[1:]], check=False, capture_output=True,
                              text=True).stdout
        self.assertRegex(told, r"devices: .*install the packages libibverbs1")
        refused = subprocess.run([*client, "--transport", "verbs", "get", "greeting"], check=False,
                                 capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("install the packages libibverbs1", refused.stderr)


def program(name):
    return os.path.join(BUILD, "tests", f"{name}_dlopen")


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
