#!/usr/bin/env python3
"""The Debian packages of a build, and its wheel: what is in them, what they depend on, that they work
from where they are unpacked, and what lintian says.

    tests/packages/packages_test.py BUILD [unittest's arguments]     BUILD: a build directory
"""

import glob
import gzip
import os
import re
import shutil
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from programs import Server, run  # noqa: E402

PYTHON = "/usr/bin/python3"  # Debian's, which the extension is built for
EXTENSION = "_rkv" + run(PYTHON, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'), end='')")
MINOR = int(run(PYTHON, "-c", "import sys; print(sys.version_info[1])"))

USE = """
import rkv, sys
with rkv.Client(server=sys.argv[1], transport="shm") as client:
    client.put("greeting", "hello")
    print(client.get("greeting").decode(), end="")
"""

# What each must have; one that has none of it elsewhere.
CONTENTS = {
    "rkv-server": ["usr/bin/kvserver", "usr/lib/systemd/system/kvserver.service", "usr/LIB/sysusers.d/rkv.conf",
                   "usr/share/man/man8/kvserver.8.gz", "usr/share/rkv/dashboard/kvserver.json",
                   "usr/share/rkv/dashboard/alerts.yml"],
    "rkv-tools": ["usr/bin/kvbench", "usr/bin/kvclient", "usr/share/man/man1/kvbench.1.gz",
                  "usr/share/man/man1/kvclient.1.gz",
                  *(f"usr/share/rkv/workloads/workload{letter}" for letter in "abcdef")],
    "librkv0.1": ["usr/LIB/librkv.so.0.1", "usr/LIB/librkv.so.0.1.0", "usr/share/lintian/overrides/librkv0.1"],
    "librkv-rdma-extras0.1": ["usr/LIB/librkv_rdma_extras.so.0.1", "usr/LIB/librkv_rdma_extras.so.0.1.0",
                              "usr/share/lintian/overrides/librkv-rdma-extras0.1"],
    "librkv-rdma-extras-dev": ["usr/LIB/librkv_rdma_extras.so", "usr/LIB/librkv_rdma_extras.a",
                               "usr/LIB/pkgconfig/rkv-rdma-extras.pc", "usr/include/rkv/rdma/channel.h",
                               "usr/include/rkv/rdma/dial.h", "usr/include/rkv/rdma/message/stream.h"],
    "librkv-dev": ["usr/LIB/librkv.so", "usr/LIB/librkv.a", "usr/LIB/pkgconfig/rkv.pc",
                   "usr/LIB/cmake/rkv/rkvConfig.cmake", "usr/include/rkv/client.h",
                   "usr/share/man/man3/rkv_c.3.gz", "usr/share/man/man3/rkv_get.3.gz"],
    "python3-rkv": ["usr/LIB/python3/dist-packages/rkv-0.1.0.dist-info/METADATA",
                    *(f"usr/LIB/python3/dist-packages/rkv/{name}" for name in (
                        "__init__.py", "__init__.pyi", "_async.py", "_client.py", "py.typed", EXTENSION))],
}
# Of libraries whose packages have other names in another release, the names without what differs.
DEPENDS = {
    "rkv-server": ["libc6", "libibverbs1", "librdmacm1", "librocksdb", "libssl", "libstdc++6"],
    "rkv-tools": ["libc6", "libedit2", "libibverbs1", "librdmacm1", "libssl"],
    "librkv0.1": ["libc6", "libfmt", "libibverbs1", "librdmacm1", "libssl"],
    "librkv-rdma-extras0.1": ["libc6", "librkv0.1"],
    "librkv-rdma-extras-dev": ["librkv-dev", "librkv-rdma-extras0.1"],
    "librkv-dev": ["libfmt-dev", "libibverbs-dev", "librdmacm-dev", "librkv0.1", "libssl-dev", "libxxhash-dev"],
    "python3-rkv": ["libc6", "librkv0.1", "libstdc++6", "python3"],
}


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="rkv-packages-")
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        run("cpack", "-B", cls.scratch, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", cwd=BUILD)
        cls.packages = {os.path.basename(path).split("_")[0]: path
                        for path in glob.glob(os.path.join(cls.scratch, "*.deb"))}

    def field(self, package, name):
        return run("dpkg-deb", "-f", self.packages[package], name).strip()

    def depends(self, package):
        return {re.match(r"[\w.+-]+", one).group() for one in self.field(package, "Depends").split(", ")}

    def unpack(self, package):
        where = tempfile.mkdtemp(dir=self.scratch)
        run("dpkg-deb", "-x", self.packages[package], where)
        return where

    def test_there_are_seven_and_each_has_its_files(self):
        self.assertEqual(sorted(self.packages), sorted(CONTENTS))
        for package, wanted in CONTENTS.items():
            where = self.unpack(package)
            files = {os.path.relpath(os.path.join(folder, name), where)
                     for folder, _, names in os.walk(where) for name in names}
            files = {re.sub(r"^usr/lib(/[^/]+-linux-gnu)?/(?!systemd)", "usr/LIB/", f) for f in files}
            wanted = [*wanted, f"usr/share/doc/{package}/copyright",
                      f"usr/share/doc/{package}/changelog.gz"]
            for path in wanted:
                self.assertIn(path, files, package)
            if not package.endswith("-dev"):
                self.assertEqual(sorted(files), sorted(wanted))

    def test_files_name_where_they_are_installed(self):
        where = self.unpack("rkv-server")
        with open(os.path.join(where, "usr/lib/systemd/system/kvserver.service"), encoding="utf-8") as unit:
            self.assertEqual(re.findall(r"(?m)^ExecStart=(.*)$", unit.read()), ["/usr/bin/kvserver"])
        with gzip.open(os.path.join(self.unpack("rkv-tools"), "usr/share/man/man1/kvbench.1.gz"), "rt") as page:
            self.assertEqual(set(re.findall(r"\S*/rkv/workloads\b", page.read())), {"/usr/share/rkv/workloads"})
        with gzip.open(os.path.join(where, "usr/share/man/man8/kvserver.8.gz"), "rt") as page:
            self.assertEqual(re.findall(r"\S*/rkv/dashboard\b", page.read()), ["/usr/share/rkv/dashboard"])

    def test_they_depend_on_what_they_load(self):
        for package, wanted in DEPENDS.items():
            names = self.depends(package)
            told = names | {re.sub(r"^(librocksdb|libfmt|libssl)[\d.]+(t64)?$", r"\1", n) for n in names}
            self.assertLessEqual(set(wanted), told, package)
            self.assertEqual([n for n in names if n.endswith("-dev")],
                             [n for n in names if package.endswith("-dev") and n.endswith("-dev")])
        for package, same in (("librkv-dev", "librkv0.1"), ("librkv-rdma-extras0.1", "librkv0.1"),
                              ("librkv-rdma-extras-dev", "librkv-dev"),
                              ("librkv-rdma-extras-dev", "librkv-rdma-extras0.1"),
                              ("python3-rkv", "librkv0.1")):
            self.assertRegex(self.field(package, "Depends"),
                             rf"{re.escape(same)} \(= {re.escape(self.field(same, 'Version'))}\)")
        for package in "librkv-rdma-extras0.1", "python3-rkv":
            self.assertNotIn("libibverbs", self.field(package, "Depends"))
        self.assertIn(f"python3 (>= 3.{MINOR}~), python3 (<< 3.{MINOR + 1})", self.field("python3-rkv", "Depends"))
        self.assertEqual(self.field("python3-rkv", "Suggests"), "python3-numpy")

    def test_lintian_has_nothing_to_say(self):
        # ./run package has the prefix /usr, which this build need not have; clean_root_test is stricter.
        self.assertEqual(run("lintian", "--allow-root", "--suppress-tags", "pkg-config-unavailable-for-cross-compilation",
                             *self.packages.values()), "")

    def test_their_programs_run_where_they_are_unpacked(self):
        server_root, tools_root = self.unpack("rkv-server"), self.unpack("rkv-tools")
        server = Server(os.path.join(server_root, "usr/bin/kvserver"), self.scratch)
        try:
            client = [os.path.join(tools_root, "usr/bin/kvclient"), "--transport", "shm",
                      "--server", server.address]
            run(*client, "put", "greeting", "hello")
            self.assertEqual(run(*client, "get", "greeting"), "hello")
        finally:
            self.assertEqual(server.stop(), 0)

    def use(self, *python, **environment):
        """Puts and gets by the package rkv of an interpreter."""
        server = Server(os.path.join(BUILD, "bin", "kvserver"), self.scratch)
        try:
            self.assertEqual(run(*python, "-c", USE, server.address, env=dict(os.environ, **environment)), "hello")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_the_python_package_works_where_it_is_unpacked(self):
        library, = glob.glob(os.path.join(self.unpack("librkv0.1"), "usr/lib/**/librkv.so.0.1"), recursive=True)
        self.use(PYTHON, PYTHONPATH=os.path.join(self.unpack("python3-rkv"), "usr/lib/python3/dist-packages"),
                 LD_LIBRARY_PATH=os.path.dirname(library))

    def test_the_wheel_works_in_a_venv_without_librkv(self):
        """It is packed as ./run package does it."""
        tree, venv = os.path.join(self.scratch, "wheel"), os.path.join(self.scratch, "venv")
        run("cmake", "--install", BUILD, "--component", "wheel", "--strip", "--prefix", tree)
        run(PYTHON, "-m", "wheel", "pack", tree, "--dest-dir", self.scratch)
        wheel, = glob.glob(os.path.join(self.scratch, "*.whl"))
        run(PYTHON, "-m", "venv", venv)
        run(os.path.join(venv, "bin", "pip"), "install", "--no-index", wheel)
        self.use(os.path.join(venv, "bin", "python3"))
        extension, = glob.glob(os.path.join(venv, f"lib/python3*/site-packages/rkv/{EXTENSION}"))
        self.assertNotRegex(run("readelf", "-d", extension), "librkv|RPATH|RUNPATH")
        with open(os.path.join(HERE, "..", "..", "client", "python", "README.md"), encoding="utf-8") as page:
            needed = set(re.findall(r"`(lib[^`]+)`", page.read()))
        self.assertLessEqual({n for n in self.depends("librkv0.1") if not re.match("libc6|libgcc|libstdc", n)}, needed)


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
