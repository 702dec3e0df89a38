#!/usr/bin/env python3
"""Programs of somebody else that use the library in every way it is offered, built here and run
against a kvserver over shared memory.

    tests/embedding/embedding_test.py BUILD [unittest's arguments]     BUILD: a build directory

Embedding: what ./run test runs. EmbeddingLong: what compiles most, with --long.
"""

import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from programs import Server, run  # noqa: E402


class Project(unittest.TestCase):
    """An installed build, a server, and what builds foreign projects."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="rkv-embedding-")
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        # Moved after it was installed: it must find itself.
        first = os.path.join(cls.scratch, "first")
        cls.prefix = os.path.join(cls.scratch, "installed")
        for component in "library", "dev", "extras", "extras_dev":
            run("cmake", "--install", BUILD, "--prefix", first, "--component", component)
        os.rename(first, cls.prefix)
        cls.library, = glob.glob(f"{cls.prefix}/lib*/**/librkv.so.0.1", recursive=True)
        cls.server = Server(os.path.join(BUILD, "bin", "kvserver"), cls.scratch)
        cls.addClassCleanup(cls.server.stop)
        # Builds in neighbouring directories, without what tells them apart, share the compiler's
        # cache. "/": their own sources (CMAKE_UNITY_BUILD) are named relatively as well.
        cls.environment = dict(os.environ, CCACHE_BASEDIR="/", CCACHE_NOHASHDIR="1")
        if shutil.which("ccache"):
            cls.environment["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"

    def build(self, project, *settings):
        """Builds a project of this directory; where its programs are."""
        where = tempfile.mkdtemp(prefix=f"{project}-", dir=self.scratch)
        run("cmake", "-G", "Ninja", "-S", os.path.join(HERE, project), "-B", where, *settings,
            env=self.environment)
        run("cmake", "--build", where, env=self.environment)
        return where

    def check(self, where, names=("store", "verbs")):
        """Runs a foreign project's programs."""
        told = run(os.path.join(where, names[0]), self.server.address)
        self.assertEqual(told, "one-sided GETs: 1\n")
        if "verbs" in names:
            self.assertRegex(run(os.path.join(where, "verbs")), r"^\[::1\]:7471, ")
        if "extras" in names:
            self.assertEqual(run(os.path.join(where, "extras")), "messages\n")

    def needs(self, program):
        """The rkv libraries that a program loads; empty if they are linked statically."""
        return sorted(re.findall(r"NEEDED.*\[(librkv.*)\]", run("readelf", "-d", program)))

    def check_extras(self, where, shared):
        """Runs all of a foreign project's programs; only one loads the library of the extras."""
        self.check(where, ["store", "verbs", "extras"])
        loaded = ["librkv.so.0.1"] if shared else []
        for name in "store", "verbs":
            self.assertEqual(self.needs(os.path.join(where, name)), loaded)
        loaded += ["librkv_rdma_extras.so.0.1"] if shared else []
        self.assertEqual(self.needs(os.path.join(where, "extras")), loaded)

    def find(self, *components):
        return self.build("found", f"-DCMAKE_BUILD_TYPE={BUILD_TYPE}", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                          f"-DCOMPONENTS={';'.join(components)}")

    def pkg_config(self, *arguments, **environment):
        where = os.path.join(os.path.dirname(self.library), "pkgconfig")
        return run("pkg-config", *arguments,
                   env=dict(os.environ, PKG_CONFIG_PATH=where, **environment)).split()

    def compile(self, name, *flags):
        program = os.path.join(tempfile.mkdtemp(dir=self.scratch), name)
        run("g++", "-std=c++23", "-Wall", "-Wextra", "-Werror",
            os.path.join(HERE, "program", f"{name}.cc"), "-o", program, *flags)
        return program

    def shown(self, library):
        """What a shared library shows: nothing foreign, and nothing internal."""
        shown = run("nm", "-D", "--defined-only", "--demangle", library).splitlines()
        names = [line.split(" ", 2)[2].replace("@@RKV_0.1", "") for line in shown]
        foreign = [n for n in names
                   if n not in ("RKV_0.1", "RKV_C_1") and not n.endswith("@@RKV_C_1") and not re.match(r"((typeinfo|typeinfo name|vtable) for )?rkv::", n)]
        internal = [n for n in names if re.search(r"rkv::(client|shm|rdma::(shm|verbs))::[a-z]*", n)
                    and not n.startswith(("rkv::Client", "rkv::AsyncClient", "rkv::SharedClient"))]
        self.assertEqual(foreign, [])
        self.assertEqual(internal, [])
        return names

    def syntax(self, *names, compiler="g++", standard="c++23"):
        headers = os.path.join(self.prefix, "include")
        includes = [word for name in names for word in ("-include", name)]
        run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
            "-I", headers, *includes, "-x", "c++", "/dev/null")

    def headers(self):
        headers = os.path.join(self.prefix, "include")
        return [os.path.relpath(h, headers)
                for h in sorted(glob.glob(f"{headers}/rkv/**/*.h", recursive=True))]


class Embedding(Project):
    def test_public_headers_compile_together(self):
        """With nothing but what is installed."""
        names = self.headers()
        self.assertIn("rkv/client.h", names)
        self.syntax(*names)

    @unittest.skipUnless(shutil.which("clang++-19"), "clang++-19 is missing")
    def test_clang_takes_public_headers(self):
        self.syntax(*self.headers(), compiler="clang++-19")

    def test_an_older_standard_is_refused_in_a_sentence(self):
        """Before whatever else is wrong then."""
        for name in "rkv/client.h", "rkv/rdma/connect.h":
            with self.assertRaises(AssertionError) as raised:
                self.syntax(name, standard="c++20")
            first = re.search(r"error: .*", str(raised.exception)).group()
            self.assertIn("rkv needs std::expected: compile as C++23", first)

    def test_find_package_static(self):
        where = self.find("client", "rdma", "static")
        self.check(where)
        self.assertEqual(self.needs(os.path.join(where, "store")), [])

    def test_find_package_shared(self):
        where = self.find()
        self.check(where)
        self.assertEqual(self.needs(os.path.join(where, "store")), ["librkv.so.0.1"])

    def test_find_package_without_the_extras(self):
        """Of librkv's own packages alone, as Debian installs them."""
        saved, self.prefix = self.prefix, os.path.join(self.scratch, "librkv-alone")
        self.addCleanup(setattr, self, "prefix", saved)
        for component in "library", "dev":
            run("cmake", "--install", BUILD, "--prefix", self.prefix, "--component", component)
        self.syntax(*self.headers())
        self.check(self.find())
        with self.assertRaisesRegex(AssertionError, r"install\s+librkv-rdma-extras-dev"):
            self.find("rdma_extras")

    def test_the_shared_client_needs_no_rdma_core_to_build(self):
        nothing = os.path.join(self.scratch, "no-packages")
        os.makedirs(nothing, exist_ok=True)
        saved, self.environment = self.environment, dict(
            self.environment, PKG_CONFIG_LIBDIR=nothing)
        try:
            where = self.find("client", "shared")
            self.check(where, ["store"])
            self.assertFalse(os.path.exists(os.path.join(where, "verbs")))
            with self.assertRaisesRegex(AssertionError, r"install\s+libibverbs-dev"):
                self.find("client", "static")
        finally:
            self.environment = saved

    def test_find_package_tells_what_it_has_not(self):
        with self.assertRaisesRegex(AssertionError, "no component 'server'"):
            self.find("server")
        with self.assertRaisesRegex(AssertionError, r"static and\s+shared"):
            self.find("static", "shared")

    def test_pkg_config_shared(self):
        libraries = os.path.dirname(self.library)
        flags = [*self.pkg_config("--cflags", "--libs", "rkv"), f"-Wl,-rpath,{libraries}"]
        self.check(os.path.dirname(self.compile("store", *flags)), ["store"])
        flags = [*self.pkg_config("--cflags", "--libs", "rkv-rdma"), f"-Wl,-rpath,{libraries}"]
        self.assertRegex(run(self.compile("verbs", *flags)), r"^\[::1\]:7471, ")
        flags = [*self.pkg_config("--cflags", "--libs", "rkv-rdma-extras"), f"-Wl,-rpath,{libraries}"]
        program = self.compile("extras", *flags)
        self.assertEqual(run(program), "messages\n")
        self.assertEqual(self.needs(program), ["librkv.so.0.1", "librkv_rdma_extras.so.0.1"])

    def test_pkg_config_static(self):
        flags = self.pkg_config("--static", "--cflags", "--libs", "rkv")
        program = self.compile("store", *static(flags))
        self.check(os.path.dirname(program), ["store"])
        self.assertEqual(self.needs(program), [])
        flags = self.pkg_config("--static", "--cflags", "--libs", "rkv-rdma-extras")
        program = self.compile("extras", *static(flags))
        self.assertEqual(run(program), "messages\n")
        self.assertEqual(self.needs(program), [])

    def test_pkg_config_is_as_its_description_says(self):
        """It wants the packages of the static library for the shared one too, and --static does not
        choose the library."""
        with self.assertRaisesRegex(AssertionError, "libibverbs"):
            self.pkg_config("--cflags", "rkv", PKG_CONFIG_LIBDIR=os.path.join(self.scratch, "no-packages"))
        flags = self.pkg_config("--static", "--libs", "rkv")
        self.assertIn("-lrkv", flags)
        self.assertIn("-libverbs", flags)

    def test_the_shared_libraries_show_rkv_alone(self):
        self.assertGreater(len(self.shown(self.library)), 100)
        extras = self.shown(os.path.join(os.path.dirname(self.library), "librkv_rdma_extras.so.0.1"))
        self.assertTrue([n for n in extras if n.startswith("rkv::rdma::Channel::")])
        self.assertEqual([n for n in self.shown(self.library) if n.startswith("rkv::rdma::Channel::")], [])

    def test_the_c_interface_stays_as_it_is(self):
        """What programs were linked with is there; the list grows only."""
        with open(os.path.join(HERE, "c_functions.txt"), encoding="utf-8") as file:
            wanted = file.read().split()
        with open(os.path.join(self.prefix, "include", "rkv", "c.h"), encoding="utf-8") as file:
            declared = re.findall(r"RKV_C_EXPORT[^;(]*?\b(rkv_\w+)\(", file.read())
        shown = [n.removesuffix("@@RKV_C_1") for n in self.shown(self.library) if n.endswith("@@RKV_C_1")]
        self.assertEqual(sorted(set(declared)), sorted(wanted))
        self.assertEqual(sorted(shown), sorted(wanted))

    def test_a_program_in_c(self):
        """Of C11, without a C++ compiler: shared, static, and by a C++ compiler that is asked for C++17."""
        source = os.path.join(HERE, "program", "plain.c")
        told = "got what was put\n"
        program = os.path.join(self.scratch, "plain")
        compiler = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-o", program]
        flags = self.pkg_config("--cflags", "--libs", "rkv")
        run(*compiler, *flags, f"-Wl,-rpath,{os.path.dirname(self.library)}")
        self.assertEqual(run(program, self.server.address), told)
        self.assertEqual(self.needs(program), ["librkv.so.0.1"])
        run(*compiler, *static(self.pkg_config("--static", "--cflags", "--libs", "rkv")))
        self.assertEqual(run(program, self.server.address), told)
        self.assertEqual(self.needs(program), [])
        run("g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-x", "c++",
            "-I", os.path.join(self.prefix, "include"), "-include", "rkv/c.h", "/dev/null")

    def test_installed_files_know_nothing_of_this_machine(self):
        found = []
        for folder, _, names in os.walk(self.prefix):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    continue
                if re.search(r"\.(a|so\.[\d.]+)$", name):  # debug information may name sources
                    stripped = os.path.join(self.scratch, name)
                    run("objcopy", "--strip-debug", path, stripped)
                    path = stripped
                with open(path, "rb") as file:
                    if re.search(re.escape(SOURCE.encode()) + rb"/|" + self.scratch.encode(), file.read()):
                        found.append(name)
        self.assertEqual(found, [])


class EmbeddingLong(Project):
    def contain(self, how, shared):
        """Without a build type, as a project that says nothing: this compiles the library, several
        sources at a time."""
        return self.build("contained", f"-DHOW={how}", f"-DRKV_SOURCE={SOURCE}",
                          f"-DBUILD_SHARED_LIBS={shared}", "-DCMAKE_UNITY_BUILD=ON",
                          "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12")

    def test_find_package_with_the_extras(self):
        for kind in "static", "shared":
            self.check_extras(self.find("client", "rdma_extras", kind), kind == "shared")

    def test_optional_components(self):
        if not glob.glob(f"{self.prefix}/lib*/**/rkv_rdma_efa.cmake", recursive=True):
            with self.assertRaisesRegex(AssertionError, "built without 'rdma_efa'"):
                self.find("rdma_efa")
            return
        for kind in "static", "shared":
            where = self.find("rdma_efa", kind)
            self.assertIn(run(os.path.join(where, "efa")), ("no device\n", "no EFA\n", "EFA\n"))

    def test_add_subdirectory_and_fetch_content(self):
        """In one test: the second takes what it compiles from the compiler's cache."""
        where = self.contain("add_subdirectory", "OFF")
        self.check_extras(where, shared=False)
        self.assertFalse(glob.glob(f"{where}/**/librkv.so*", recursive=True), "not asked for")
        where = self.contain("FetchContent", "ON")
        self.check_extras(where, shared=True)
        self.assertFalse(glob.glob(f"{where}/**/kv*", recursive=True), "programs were not asked for")

    def test_public_headers_are_whole(self):
        """Each compiles alone."""
        names = self.headers()
        # The build under test compiled these alone: a source of it begins with them.
        first = headers_that_begin_a_source()
        alone = [name for name in names if name not in first]
        self.assertTrue(set(names) & first)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(self.syntax, alone):
                pass


def static(flags):
    """pkg-config's flags with the static libraries by their files' names."""
    return [re.sub("^-l(rkv.*)$", r"-l:lib\1.a", flag) for flag in flags]


def headers_that_begin_a_source():
    """What the first line with # of a source of this build includes, before any other code."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        sources = {entry["file"] for entry in json.load(file) if "-include " not in entry["command"]}
    found = set()
    for source in sources:
        with open(source, encoding="utf-8") as file:
            begin = re.match(r"(?:\s*(?://[^\n]*)?\n)*#include [<\"]([^>\"]+)[>\"]", file.read())
        if begin:
            found.add(begin[1])
    return found


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as cache:
        BUILD_TYPE = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache.read(), re.M).group(1)
    unittest.main(verbosity=2)
