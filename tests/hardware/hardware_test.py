#!/usr/bin/env python3
"""`./run hardware`: its options, what it says without a device, its report; and on a device each step,
failures, time limits, Ctrl-C, and a server of another process.

    tests/hardware/hardware_test.py BUILD Anywhere|OnADevice|OnADeviceWhole     BUILD: such as build/dev
"""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.path.join(HERE, "hardware.py")
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import machine  # noqa: E402
from report import FAILED, NOT_RUN, PASSED, Report, Scrubber  # noqa: E402

STEPS = ["machine", "raw", "doctor", "contract", "device", "windows", "atomics", "tears", "history", "demo", "get"]


def scratch_of(test):
    folder = tempfile.TemporaryDirectory(prefix="rkv-hardware-test-")
    test.addCleanup(folder.cleanup)
    return folder.name


def wait_until(condition, what, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {limit_s} s")
        time.sleep(0.02)


class Anywhere(unittest.TestCase):
    def run_it(self, *arguments):
        return subprocess.run([os.path.join(ROOT, "run"), "hardware", *arguments], check=False,
                              capture_output=True, text=True)

    def test_wrong_options_are_one_sentence(self):
        for wrong in (["--nope"], ["stray"], ["--vm", "--serve"], ["--vm", "--server", "192.0.2.1:7471"],
                      ["--server", "192.0.2.1"], ["--server", ":7471"], ["--server", "192.0.2.1:70000"],
                      ["--only", "tests"], ["--only", "ping"], ["--limit", "0"], ["--limit", "x"], ["--port", "0"],
                      ["--address", "192.0.2"], ["--report", "/none/there.md"], ["--report", "/tmp"], ["--quic"]):
            with self.subTest(wrong):
                done = self.run_it(*wrong)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertRegex(done.stderr, r"\Ahardware: [^\n]+; see ./run hardware --help\n\Z")

    def test_help_is_shown(self):
        done = self.run_it("--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("exit status: 0", done.stdout)

    def test_without_a_device_it_says_what_to_do(self):
        """Before anything is built."""
        if not machine.devices():  # on a machine with one, the other names of devices show the same
            done = self.run_it()
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            self.assertRegex(done.stderr, r"\Ahardware: this machine has no RDMA device: `./run hardware --vm`"
                                          r"[^\n]*`./run softroce --native`[^\n]*\n\Z")
        done = self.run_it("--device", "no_such_device")
        self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
        self.assertRegex(done.stderr, r"\Ahardware: [^\n]+ no RDMA device[^\n]+\n\Z")

    def test_names_and_addresses_are_taken_out(self):
        scrub = Scrubber(names={"db7.example.org", "db7"}, replace={"/home/ann/": "~/"})
        text = scrub("on db7 and db7.example.org: 10.1.2.3:7471, 10.1.2.4, again 10.1.2.3; ::ffff:10.1.2.3 fe80::1:2ff"
                     " 2001:db8:0:1:2:3:4:5 fe80:0000:0000:0000:5054:00ff:fe77:0001 node_guid: 5054:00ff:fe77:0001"
                     " 52:54:00:77:00:01 in /home/ann/rkv, 00:00:10:49:fe:80:00:00:00:00:00:00:52:54:00:ff:fe:77:00:01")
        for secret in ("db7", "10.1", "2001", "5054", "fe77", "52:54", "ann", "2ff", "10:49"):
            self.assertNotIn(secret, text)
        found = re.findall(r"(\S+):7471, (\S+), again (\S+);", text)[0]
        self.assertEqual(found[0], found[2])
        self.assertNotEqual(found[0], found[1])

    def test_what_is_no_address_stays(self):
        for text in ("127.0.0.1:7471 0.0.0.0 192.0.2.1", "Linux 6.1.0-56-amd64 at 12:34:56, 1.2.3", "firmware 22.31.1014",
                     "Verbs/TransportContract.X/0 rkv::rdma::add()", "0000:3b:00.0 0x15b3", "dbx and db70"):
            self.assertEqual(Scrubber(names={"db7"})(text), text)
        self.assertEqual(Scrubber(keep=True, names={"db7"})("db7 10.1.2.3"), "db7 10.1.2.3")

    def test_the_report_has_its_verdicts_first(self):
        path = os.path.join(scratch_of(self), "r.md")
        report = Report(path, Scrubber(names=set()), "something")
        report.command = "./run hardware"
        for name, verdict in (("one", PASSED), ("two", FAILED), ("three", NOT_RUN)):
            report.steps.append({"name": name, "verdict": verdict, "seconds": 1.0, "note": f"note | of {name}"})
        report.logs = {"one": "quiet\n", "two": "".join(f"line {i}\n" for i in range(200))}
        report.write()
        with open(path, encoding="utf-8") as text:
            lines = text.read().splitlines()
        self.assertEqual(lines[0], "# rkv on something: FAILED: two")
        self.assertIn("1 passed, 1 FAILED, 1 not run", lines[2])
        self.assertEqual(lines[6:9], ["| one | passed | 1 | note \\| of one |", "| two | FAILED | 1 | note \\| of two |",
                                      "| three | not run | 1 | note \\| of three |"])
        self.assertIn("line 199", lines)
        self.assertNotIn("line 100", lines)  # the archive has it
        self.assertNotIn("quiet", lines)
        with tarfile.open(os.path.join(os.path.dirname(path), "r-logs.tar.gz")) as archive:
            self.assertEqual(sorted(archive.getnames()), ["logs/one.log", "logs/two.log"])
            self.assertIn(b"line 100\n", archive.extractfile("logs/two.log").read())
            self.assertEqual({(member.uid, member.uname) for member in archive.getmembers()}, {(0, "")})

    def test_kinds_of_gids(self):
        self.assertIsNone(machine.gid_kind("0000:0000:0000:0000:0000:0000:0000:0000"))
        self.assertEqual(machine.gid_kind("0000:0000:0000:0000:0000:ffff:c0a8:4d01"), "IPv4")
        self.assertEqual(machine.gid_kind("fe80:0000:0000:0000:5054:00ff:fe77:0001"), "link-local")

    def test_counters_that_changed(self):
        self.assertEqual(machine.changed({"a": 1, "b": 2}, {"a": 1, "b": 5, "c": 7}), {"b": 3, "c": 7})


def steps_it_lacks():
    """Those that need what the device does not have."""
    device = os.environ["RKV_RDMA_DEVICE"]
    needs = {"windows": machine.has_windows, "atomics": machine.has_atomics}
    return {step for step, has in needs.items() if not has(device)}


class OnADeviceFixture(unittest.TestCase):
    """Fails, never skips, without one."""

    def setUp(self):
        self.scratch = scratch_of(self)
        self.path = os.path.join(self.scratch, "report.md")

    def command(self, *arguments, build=None):
        return [sys.executable, PROGRAM, "--build", build or BUILD, *arguments]

    def run_it(self, *arguments, build=None):
        """(status, what it printed, its JSON)."""
        done = subprocess.run(self.command("--report", self.path, *arguments, build=build), check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertTrue(os.path.exists(self.path), done.stdout)
        return done.returncode, done.stdout, self.as_json()

    def as_json(self):
        with open(self.path.removesuffix(".md") + ".json", encoding="utf-8") as text:
            return json.load(text)

    def page(self):
        with open(self.path, encoding="utf-8") as text:
            return text.read()

    def verdicts(self, report):
        return {step["name"]: step["verdict"] for step in report["steps"]}

    def build_with(self, name, script):
        """A folder of programs in which one test is a script of ours."""
        build = os.path.join(self.scratch, "build")
        os.makedirs(os.path.join(build, "tests"))
        os.symlink(os.path.join(BUILD, "bin"), os.path.join(build, "bin"))
        path = os.path.join(build, "tests", name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(path, stat.S_IRWXU)
        return build

    def everything(self):
        """All that would be sent."""
        texts = [self.page(), json.dumps(self.as_json())]
        with tarfile.open(self.path.removesuffix(".md") + "-logs.tar.gz") as archive:
            texts += [archive.extractfile(member).read().decode() for member in archive.getmembers()]
        return "\n".join(texts)

    def expect_whole(self, printed, report, steps):
        """Every step has its line and passed, or says why it was not run; nothing secret is sent."""
        verdicts = self.verdicts(report)
        self.assertEqual(list(verdicts), STEPS)
        self.assertEqual({name for name, verdict in verdicts.items() if verdict == PASSED}, steps, printed)
        self.assertLessEqual(set(verdicts.values()), {PASSED, NOT_RUN}, printed)
        for name in STEPS:
            self.assertRegex(printed, rf"(?m)^(passed|not run) +{name} ")
            self.assertRegex(self.page(), rf"(?m)^\| {name} \| (passed|not run) \|")
        device = os.environ["RKV_RDMA_DEVICE"]
        if os.environ.get("RKV_IN_VM") == "1":
            kind = {"rxe0": "SoftRoCE", "siw0": "soft-iWARP"}[device]
            self.assertTrue(self.page().startswith(f"# rkv on {kind} ({device}): every step that was run passed\n"))
            iwarp = device == "siw0"
            self.assertEqual(report["machine"][f"Device {device}"]["atomic_cap"].partition(" ")[0],
                             "ATOMIC_NONE" if iwarp else "ATOMIC_HCA")
            self.assertEqual("RoCE v2 IPv4" in report["machine"][f"Port {device}/1"]["GIDs"], not iwarp)
            self.assertIn("interface dummy0", report["machine"][f"Port {device}/1"])
        self.assertIn("ACTIVE", report["machine"][f"Port {device}/1"]["state"])
        self.assertLessEqual({finding["status"] for finding in report["doctor"]}, {"ok", "warning"})
        self.assertIn("ping", [finding["check"] for finding in report["doctor"]])  # there was a server
        if machine.counters(device):
            self.assertGreater(sum(by for name, by in report["counters"].items()), 0)
        sent = self.everything()
        for secret in (os.environ["RKV_RDMA_ADDRESS"], socket.gethostname()):
            self.assertNotIn(secret, sent)
        self.assertIn("ADDRESS_1", sent)


class OnADevice(OnADeviceFixture):
    def test_steps_that_were_chosen_pass(self):
        status, printed, report = self.run_it("--quick", "--only", "machine,doctor,windows,demo")
        self.assertEqual(status, 0, printed + self.page())
        self.expect_whole(printed, report, {"machine", "doctor", "windows", "demo"} - steps_it_lacks())

    def test_a_failure_is_reported_with_its_output(self):
        build = self.build_with("contract_verbs_test", "echo 'the adapter is on fire'\nexit 7\n")
        status, printed, report = self.run_it("--only", "machine,contract", build=build)
        self.assertEqual(status, 1, printed)
        verdicts = self.verdicts(report)
        self.assertEqual((verdicts.pop("machine"), verdicts.pop("contract")), (PASSED, FAILED))
        self.assertEqual(set(verdicts.values()), {NOT_RUN})
        self.assertRegex(self.page(), r"\A# rkv on [^\n]*: FAILED: contract\n")
        self.assertRegex(self.page(), r"(?ms)^## Output of contract, which failed$.*^the adapter is on fire$")
        self.assertIn("ended with status 7: the adapter is on fire", printed)

    def test_a_program_that_runs_no_case_has_failed(self):
        build = self.build_with("rdma_memory_test", "echo '[==========] 0 tests ran.'\necho '[  PASSED  ] 0 tests.'\n")
        status, printed, _ = self.run_it("--only", "windows", build=build)
        self.assertEqual(status, 1, printed)
        self.assertIn("rdma_memory_test ran no case", printed)

    def test_a_program_that_is_missing_has_failed(self):
        build = self.build_with("another", "")
        status, printed, _ = self.run_it("--only", "windows", build=build)
        self.assertEqual(status, 1, printed)
        self.assertRegex(printed, r"(?m)^FAILED +windows .*No such file.*rdma_memory_test")

    def test_a_program_that_does_not_end_is_stopped(self):
        build = self.build_with("contract_verbs_test", "echo $$ >\"$0.pid\"\nsleep 1000\n")
        status, printed, report = self.run_it("--only", "contract", "--limit", "3", build=build)
        self.assertEqual((status, self.verdicts(report)["contract"]), (1, FAILED), printed)
        self.assertIn("not done within 3 s", printed)
        with open(os.path.join(build, "tests", "contract_verbs_test.pid"), encoding="ascii") as pid:
            self.assertFalse(os.path.exists(f"/proc/{pid.read().strip()}"))

    def test_ctrl_c_leaves_a_report(self):
        build = self.build_with("contract_verbs_test", "echo so far\necho >\"$0.started\"\nexec sleep 1000\n")
        command = self.command("--report", self.path, "--only", "machine,contract,demo", build=build)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            started = os.path.join(build, "tests", "contract_verbs_test.started")
            wait_until(lambda: os.path.exists(started) or process.poll() is not None, "contract")
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, printed)
        report = self.as_json()
        self.assertEqual(report["headline"], "ended early by SIGINT")
        verdicts = self.verdicts(report)
        self.assertEqual(list(verdicts), STEPS)
        self.assertEqual((verdicts["machine"], verdicts["contract"], verdicts["demo"]), (PASSED, FAILED, NOT_RUN))
        self.assertIn("so far", self.page())


class OnADeviceWhole(OnADeviceFixture):
    def test_all_steps_pass(self):
        status, printed, report = self.run_it("--quick")
        self.assertEqual(status, 0, printed + self.page())
        self.expect_whole(printed, report, set(STEPS) - {"history"} - steps_it_lacks())
        self.assertIn("warm GET p50 / ib_read_lat", [row["name"] for row in report["figures"]])
        self.assertTrue(all(row["figure"] >= 0 for row in report["figures"]))

    def test_two_hosts(self):
        """Both are this machine: what travels is the same."""
        with subprocess.Popen(self.command("--serve", "--port", "7479"), stdout=subprocess.PIPE, text=True) as server:
            try:
                said = ""
                for line in server.stdout:
                    said += line
                    if "ready" in line:
                        break
                there = f"{os.environ['RKV_RDMA_ADDRESS']}:7479"
                self.assertIn(f"./run hardware --server {there}\n", said)
                status, printed, report = self.run_it("--quick", "--server", there)
            finally:
                server.send_signal(signal.SIGINT)
                server.communicate(timeout=60)
        self.assertEqual(status, 0, printed + self.page())
        self.assertEqual(self.verdicts(report), dict.fromkeys(["machine", "doctor", "ping", "compare", "get"], PASSED))
        self.assertEqual(server.returncode, 0)
        self.assertNotIn(there, self.everything())
        status, printed, report = self.run_it("--quick", "--server", there)  # it has ended
        self.assertEqual(status, 1, printed)
        self.assertEqual(self.verdicts(report)["ping"], FAILED)


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
