#!/usr/bin/env python3
"""What is installed with the programs: manual pages that say what --help says, and the service.

    tests/packages/programs_test.py BUILD [unittest's arguments]     BUILD: a build directory
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from programs import Server, run  # noqa: E402

PAGES = {"kvserver": "kvserver.8", "kvclient": "kvclient.1", "kvbench": "kvbench.1"}
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def installed(prefix, **environment):
    """Where programs, pages and service are when somebody installs them there."""
    for component in "server", "tools":
        run("cmake", "--install", BUILD, "--prefix", prefix, "--component", component,
            env=dict(os.environ, **environment))
    return prefix


def setUpModule():
    global PREFIX
    scratch = tempfile.mkdtemp(prefix="rkv-installed-")
    unittest.addModuleCleanup(shutil.rmtree, scratch)
    PREFIX = installed(os.path.join(scratch, "prefix"))


def page_of(program):
    return os.path.join(PREFIX, "share", "man", f"man{PAGES[program][-1]}", PAGES[program])


def unit_of(prefix):
    with open(os.path.join(prefix, "lib", "systemd", "system", "kvserver.service"),
              encoding="utf-8") as unit:
        return unit.read()


def rendered(program):
    """The page as text; long lines, so that no word is broken."""
    return run("groff", "-mandoc", "-Tutf8", "-P-cbou", "-rLL=400n", page_of(program))


def options_of(text):
    # A page's minus may be a hyphen of another kind.
    return set(OPTION.findall(text.replace("−", "-").replace("‐", "-")))


def help_of(*command):
    return run(os.path.join(BUILD, "bin", command[0]), *command[1:], "--help")


class ManualPages(unittest.TestCase):
    def compare(self, program, told):
        written = options_of(rendered(program))
        self.assertEqual(sorted(written - told), [], f"{program} knows no such option")
        self.assertEqual(sorted(told - written), [], f"{PAGES[program]} lacks")

    def test_kvserver(self):
        self.compare("kvserver", options_of(help_of("kvserver")))

    def test_kvbench(self):
        self.compare("kvbench", options_of(help_of("kvbench")))

    def test_kvclient_with_all_of_its_verbs(self):
        overview = help_of("kvclient")
        verbs = re.findall(r"^  ([a-z]+)\b", overview, re.M)
        self.assertGreater(len(verbs), 10)
        told = options_of(overview)
        for verb in verbs:
            told |= options_of(help_of("kvclient", verb))
        self.compare("kvclient", told)
        page = rendered("kvclient")
        for verb in verbs:
            self.assertRegex(page, rf"(?m)^ +{verb}\b")

    def test_exit_statuses_are_those_of_help(self):
        for program in PAGES:
            text = re.search(r"(?s)Exit (?:status|codes): (.*)$", help_of(program)).group(1)
            told = re.findall(r"(?<![\w.])\d\b", text)
            section = re.search(r"(?s)\nEXIT STATUS\n(.*?)\n\S", rendered(program)).group(1)
            self.assertEqual(re.findall(r"(?m)^ +(\d)\b", section), told, program)

    def test_formatters_have_nothing_to_complain_about(self):
        for program in PAGES:
            self.assertEqual(run("groff", "-mandoc", "-ww", "-z", page_of(program)), "")
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                done = subprocess.run(["man", "--warnings", "-l", page_of(program)], check=True,
                                      stdout=nowhere, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.stderr, "")


class ManualPagesOfC(unittest.TestCase):
    """Each function of the interface in C has a page, and the pages are as formatters want them."""

    @classmethod
    def setUpClass(cls):
        cls.prefix = tempfile.mkdtemp(prefix="rkv-pages-")
        cls.addClassCleanup(shutil.rmtree, cls.prefix)
        run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", "dev")
        cls.folder = os.path.join(cls.prefix, "share", "man", "man3")
        with open(os.path.join(HERE, "..", "embedding", "c_functions.txt"), encoding="utf-8") as names:
            cls.functions = names.read().split()

    def shown(self, name):
        """The page that man(1) shows, with what it and groff say of it."""
        done = subprocess.run(["man", "--warnings", "-M", os.path.join(self.prefix, "share", "man"), "3", name],
                              check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, MANWIDTH="400", LC_ALL="C.UTF-8"))
        self.assertEqual(done.stderr, "", name)
        return done.stdout

    def test_each_function_has_one_and_no_other_name(self):
        self.assertEqual(sorted(os.listdir(self.folder)),
                         sorted(f"{name}.3" for name in [*self.functions, "rkv_c"]))

    def test_each_shows_its_declaration(self):
        with open(os.path.join(HERE, "..", "..", "client", "include", "rkv", "c.h"), encoding="utf-8") as header:
            code = " ".join(header.read().split("extern \"C\"")[1].split())
        for name in self.functions:
            page = self.shown(name)
            at = re.search(rf"\b{name}\((?!\))", code).start()
            declared = code[code.rindex("RKV_C_EXPORT ", 0, at):code.index(";", at) + 1]
            self.assertIn(declared.removeprefix("RKV_C_EXPORT "), " ".join(page.split()))
            self.assertRegex(page, rf"\nNAME\n +[^—]*\b{name}\b[^—]* — ")

    def test_the_overview_leads_to_each(self):
        page = self.shown("rkv_c")
        for name in self.functions:
            self.assertIn(f"{name}()", page)
        for name in re.findall(r"(\w+)\(3\)", page):
            self.assertIn(name.lower(), [*self.functions, "rkv_c"])

    def test_groff_has_nothing_to_complain_about(self):
        for name in os.listdir(self.folder):
            self.assertEqual(run("groff", "-mandoc", "-ww", "-z", "-I", os.path.dirname(self.folder),
                                 os.path.join(self.folder, name)), "", name)


class Examples(unittest.TestCase):
    def test_those_of_the_page_of_kvbench(self):
        """As they stand there but for the counts, by the programs and with the files installed."""
        with open(page_of("kvbench"), encoding="utf-8") as page:
            examples = re.findall(r"(?m)^\.Dl (kvbench .*)$", page.read())
        self.assertEqual(len(examples), 2)
        scratch = tempfile.mkdtemp(prefix="rkv-examples-")
        self.addCleanup(shutil.rmtree, scratch)
        server = Server(os.path.join(PREFIX, "bin", "kvserver"), scratch)
        self.addCleanup(server.stop)
        environment = dict(os.environ, PATH=f"{PREFIX}/bin:{os.environ['PATH']}",
                           KVCLIENT_TRANSPORT="shm", KVCLIENT_SERVER=server.address)
        for example in examples:
            told = run(*re.sub(r"count=\d+", "count=1000", example).split(), env=environment)
            self.assertIn("[OVERALL], Throughput(ops/sec), ", told)


class Service(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="rkv-service-")
        self.addCleanup(shutil.rmtree, self.scratch)
        self.unit = unit_of(PREFIX)

    def verify(self, text):
        """What systemd says of a unit, with the program that is installed and no manual page that man(1) finds."""
        text = re.sub(r"(?m)^Documentation=.*\n", "", text)
        path = os.path.join(self.scratch, "kvserver.service")
        with open(path, "w", encoding="utf-8") as unit:
            unit.write(text)
        done = subprocess.run(["systemd-analyze", "verify", path], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, "".join(line + "\n" for line in done.stdout.splitlines()
                                        if "kvserver.service" in line)

    def test_systemd_takes_the_unit(self):
        self.assertEqual(self.verify(self.unit), (0, ""))

    def test_it_starts_the_program_that_was_installed_with_it(self):
        """Wherever that is, which is said when it is installed."""
        started = re.compile(r"(?m)^ExecStart=(.*)$")
        self.assertEqual(started.findall(self.unit), [f"{PREFIX}/bin/kvserver"])
        self.assertTrue(os.access(f"{PREFIX}/bin/kvserver", os.X_OK))
        other = os.path.join(self.scratch, "other")
        self.assertEqual(started.findall(unit_of(installed(other))), [f"{other}/bin/kvserver"])
        staged = os.path.join(self.scratch, "staged")
        installed("/usr", DESTDIR=staged)
        self.assertEqual(started.findall(unit_of(f"{staged}/usr")), ["/usr/bin/kvserver"])

    def test_a_mistake_would_be_seen(self):
        self.assertIn("WatchdogSecs", self.verify(self.unit.replace("WatchdogSec=", "WatchdogSecs="))[1])

    def test_what_it_must_say(self):
        for line in ("Type=notify", "LimitMEMLOCK=infinity", "StateDirectory=rkv",
                     # Without these it is given up after five failures within a second.
                     "Restart=on-failure", "RestartSec=5s", "StartLimitIntervalSec=0",
                     "After=network-online.target rdma-hw.target time-sync.target",
                     # Data is private, and no start is repeated that must fail again.
                     "UMask=0077", "RestartPreventExitStatus=2 4"):
            self.assertRegex(self.unit, rf"(?m)^{line}$")
        self.assertRegex(self.unit, r"(?m)^WatchdogSec=\d")
        self.assertNotRegex(self.unit, r"(?m)^PrivateDevices=")

    def test_the_server_tells_its_manager(self):
        """READY=1 when clients are admitted, then that it lives, at the end that it stops."""
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        path = os.path.join(self.scratch, "notify")
        manager.bind(path)
        manager.settimeout(60)
        os.environ.update(NOTIFY_SOCKET=path, WATCHDOG_USEC="200000")
        try:
            server = Server(os.path.join(BUILD, "bin", "kvserver"), self.scratch, "--data-dir",
                            os.path.join(self.scratch, "data"))
        finally:
            del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]
        told = [manager.recv(100) for _ in range(3)]
        self.assertEqual(server.stop(), 0)
        self.assertEqual(told, [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"])
        while (last := manager.recv(100)) == b"WATCHDOG=1":
            pass
        self.assertEqual(last, b"STOPPING=1\nWATCHDOG=1")


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
