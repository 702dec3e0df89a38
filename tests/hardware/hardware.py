#!/usr/bin/env python3
"""`./run hardware`: does the store work on this machine's RDMA device? Shows the device and its
surroundings, runs kvclient doctor, tests, the demonstration and a benchmark over verbs, and writes a
report to send to the project. README.md of this folder says what to expect."""

import argparse
import contextlib
import fnmatch
import hashlib
import ipaddress
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import types

sys.dont_write_bytecode = True  # the sources stay as they are

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
for folder in "bench", "docker", "tests/softroce":
    sys.path.insert(0, os.path.join(ROOT, folder))

import machine  # noqa: E402
from common import Failed, at_least, kvserver, new_file, program  # noqa: E402
from machinery import SIGNALS, Ended, end_by_signal, ignore_signals, last_line, native, run_as_group  # noqa: E402
from perftest import perftest  # noqa: E402
from report import FAILED, NOT_RUN, PASSED, Report, Scrubber  # noqa: E402
from tally import FAILED as CASE_FAILED, PASSED as CASE_PASSED, cases_printed  # noqa: E402

SOME_FAILED, USAGE, NO_DEVICE = 1, 2, 3
PORT = 7471

NO_DEVICE_HELP = ("`./run hardware --vm` does all of this on SoftRoCE, in a small VM; `./run softroce --native`, as"
                  " root, puts SoftRoCE on this machine's own interface if its kernel has rdma_rxe (Debian:"
                  " linux-image-amd64); an adapter needs its driver, a link that is up and an IPv4 address:"
                  " tests/hardware/README.md")

# What needs atomics, among all that needs none.
ATOMIC_CASES = ("*Atomic*", "*CompareSwap*", "*FetchAdd*")


# Of the verbs library's tests, what iWARP has not.
LEFT_OUT_ON_IWARP = os.path.join(ROOT, "tests/rdma/not_on_iwarp.txt")


def left_out_on_iwarp(program_name):
    with open(LEFT_OUT_ON_IWARP, encoding="ascii") as lines:
        pairs = [line.split() for line in lines if not line.startswith("#") and line.strip()]
    return [pattern for name, pattern in pairs if program_name == f"rdma_{name}_test"]


class NotRun(Exception):
    """A step that cannot be run here; the text is the reason."""


class TimeLimit(BaseException):
    """Of a step. Nothing must take it for an error of its own."""


def raise_time_limit(_number, _frame):
    raise TimeLimit


# ---- steps: each takes a Run and returns what is to be said of its success ----

def show_machine(run):
    run.report.about = machine.all_facts(run.device, run.limits)
    run.log(machine.output("ibv_devinfo", "-v", "-d", run.device))
    run.log(machine.output("rdma", "link", "show"))
    facts = run.report.about[f"Device {run.device}"]
    return f"{facts['device']}, firmware {facts['firmware']}, {run.report.about['System']['kernel']}"


def raw_verbs(run):
    """perftest alone, by the connection manager: what fails here is not the store's fault."""
    count = "200" if run.options.quick else "2000"
    columns = perftest("ib_read_lat", run.server_address, 18531, 128, ["-n", count])
    run.log(f"ib_read_lat of 128 bytes: {columns}")
    return f"ib_read_lat of 128 bytes: p50 {columns[4]:.1f} us, p99 {columns[7]:.1f} us"


def doctor(run):
    with run.server():
        status, text = run.start(run.bin("kvclient"), "--transport", "verbs", "--device", run.device, "--server",
                                 run.server_address, "--output", "json", "doctor")
    try:
        findings = json.loads(text[re.search(r"^\[", text, re.MULTILINE).start():])
    except (AttributeError, ValueError) as error:
        raise Failed(f"kvclient doctor ended with status {status} and printed no findings: {last_line(text)}") from error
    run.report.findings = findings
    wrong = [finding for finding in findings if finding["status"] != "ok"]
    said = "; ".join(f"{finding['check']} {finding['subject']}: {finding['found']}" for finding in wrong)
    if status != 0:
        raise Failed(f"{said} (what to do: below, in the column advice)")
    return f"{len(findings)} checks" + (f", warnings: {said}" if said else "")


def contract(run):
    quick = ["VerbsTransport.*", "Verbs/TransportContract.*/verbs"]  # not again on a transport that can reopen
    return run.gtest("contract_verbs_test", quick if run.options.quick else ["*"])


def device_tests(run):
    notes = [run.gtest("rdma_device_test", ["*"])]
    if not run.options.quick:
        notes += [run.gtest(name, ["*"]) for name in ("rdma_completion_test", "rdma_connect_test")]
    return "; ".join(notes)


def windows(run):
    if run.options.quick and not machine.has_windows(run.device):
        raise NotRun("the device has no memory windows (max_mw 0)")
    if run.options.quick:
        return run.gtest("rdma_memory_test", ["Windows.*"])
    return run.gtest("rdma_memory_test", ["*"])


def atomics(run):
    if not run.atomics:
        raise NotRun("the device has no atomics (atomic_cap ATOMIC_NONE)")
    scope = machine.verbs_attributes(run.device).get("atomic_cap", "unknown").partition(" ")[0]
    notes = [run.gtest("rdma_device_test", ["OneSided.CompareSwap*"], atomic=True),
             run.gtest("contract_verbs_test", [f"Verbs/{cases}/verbs" for cases in ATOMIC_CASES], atomic=True),
             run.gtest("system_test", ["OneSidedCounter.IsChangedByAtomicsAndRequestsAlike",
                                       "OneSidedCounter.ThousandsOfAdditionsArePipelined"], atomic=True)]
    return f"atomic_cap {scope}; " + "; ".join(notes)


def tears(run):
    return run.gtest("system_test", ["Storm.*"])


def history(run):
    if run.options.quick:
        raise NotRun("--quick leaves it out")
    return run.gtest("history_run_test", ["*"], RKV_HISTORY_OPERATIONS="3000")


def demonstration(run):
    with run.records() as file:
        out = os.path.join(os.path.dirname(file), "demo.json")
        run.must(os.path.join(ROOT, "tests/demo/demo.py"), file, "--transport", "verbs", "--bin", run.bin(),
                 "--address", run.server_address, "--memory", "256MiB", "--json", out)
        with open(out, encoding="utf-8") as text:
            result = json.load(text)
    loaded = result["loaded"]
    return (f"{loaded['records']:,} records equal before and after a kill; p50 {loaded['p50_us']:.1f} us, p99"
            f" {loaded['p99_us']:.1f} us, {loaded['rdma_reads_per_get']:.2f} READs a GET")


def benchmark(run):
    """GETs beside perftest's READs of as many bytes: ratios, of which none is judged."""
    few = ["--repetitions", "1", "--gets", "300", "--keys", "300", "--cpu-gets", "1000"] if run.options.quick else []
    with tempfile.TemporaryDirectory(prefix="rkv-hardware-") as scratch:
        out = os.path.join(scratch, "get.json")
        run.must(os.path.join(ROOT, "bench/get.py"), "--transport", "verbs", "--bin", run.bin(), "--address",
                 run.server_address, "--json", out, *few)
        with open(out, encoding="utf-8") as text:
            run.report.figures = json.load(text)["figures"]
    return "; ".join(f"{row['name']}: {row['figure']:.2f}" for row in run.report.figures)


# ---- with a server on another host ----

def ping(run):
    _, text = run.must(run.bin("kvclient"), *run.to_server, "ping", "-c", "20" if run.options.quick else "1000")
    return last_line(text)


def load_and_compare(run):
    with run.records() as file:
        run.must(run.bin("kvclient"), *run.to_server, "load", file)
        _, text = run.must(run.bin("kvclient"), *run.to_server, "--output", "json", "verify", "--sequential", file)
    result = json.loads(text[re.search(r"^\{", text, re.MULTILINE).start():])
    return (f"{result['records']:,} records equal, {result['one_sided_gets']:,} of {result['gets']:,} GETs one-sided;"
            f" p50 {result['p50_us']:.1f} us, p99 {result['p99_us']:.1f} us")


def remote_gets(run):
    """The phases of `bench get` against the server there; perftest would need a program there too."""
    settings = {"gets": 300, "keys": 300} if run.options.quick else {"gets": 5000, "keys": 10_000}
    options = types.SimpleNamespace(bin=run.bin(), address=run.server_address, transport="verbs", poll="busy")
    rows = {}
    for phase in "load", "warm", "cold", "pipelined", "pipelined_cold":
        with contextlib.redirect_stderr(run.file):
            result = program(options, "bench_get", phase, value_bytes=100, depth=32, **settings)
        run.log(f"bench_get {phase}: {result}")
        for key, unit in (("p50_us", "p50 (us)"), ("p99_us", "p99 (us)"), ("gets_per_s", "GETs/s")):
            if key in result and phase != "load":
                rows[f"{phase} {unit}"] = result[key]
    run.report.figures = [{"name": name, "figure": value, "min": value, "max": value} for name, value in rows.items()]
    return "; ".join(f"{name}: {value:,.1f}" for name, value in rows.items())


class Step:
    def __init__(self, name, run, limit_s, programs=()):
        self.name, self.run, self.limit_s, self.programs = name, run, limit_s, programs


DETECT = Step("machine", show_machine, 120)
DOCTOR = Step("doctor", doctor, 120, ("kvserver", "kvclient"))
HERE_ALONE = (
    DETECT, Step("raw", raw_verbs, 120), DOCTOR,
    Step("contract", contract, 240, ("contract_verbs_test",)),
    Step("device", device_tests, 480, ("rdma_device_test", "rdma_completion_test", "rdma_connect_test")),
    Step("windows", windows, 300, ("rdma_memory_test",)),
    Step("atomics", atomics, 300, ("rdma_device_test", "contract_verbs_test", "system_test", "kvserver", "kvclient")),
    Step("tears", tears, 300, ("system_test", "kvserver")),
    Step("history", history, 600, ("history_run_test", "kvserver")),
    Step("demo", demonstration, 600, ("kvserver", "kvclient")),
    Step("get", benchmark, 900, ("kvserver", "bench_get")))
TO_SERVER = (
    DETECT, DOCTOR, Step("ping", ping, 120, ("kvclient",)), Step("compare", load_and_compare, 600, ("kvclient",)),
    Step("get", remote_gets, 600, ("bench_get",)))


def steps_of(options):
    return TO_SERVER if options.server else HERE_ALONE


class Run:
    """One run of the steps, and what they share."""

    def __init__(self, options, device, address, report, atomics_there):
        self.options, self.device, self.address, self.report = options, device, address, report
        self.atomics, self.limits = atomics_there, machine.limits()
        self.server_address = options.server or f"{address}:{options.port}"
        self.to_server = ["--transport", "verbs", "--server", self.server_address]
        self.file = None  # the log of the step that runs
        self.environment = {**os.environ, "RKV_RDMA_DEVICE": device, "RKV_RDMA_ADDRESS": address,
                            "RKV_TEST_TRANSPORT": "verbs", "KVSERVER_TRANSPORT": "verbs", "KVCLIENT_TRANSPORT": "verbs"}

    def bin(self, *name):
        return os.path.join(self.options.build, "bin", *name)

    def log(self, text):
        print(text, file=self.file, flush=True)

    def start(self, *command, **environment):
        """Runs a command; its exit status and what it printed on both streams."""
        self.log(f"$ {shlex.join(command)}")
        begin = self.file.tell()
        done = run_as_group(command, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
                            env={**self.environment, **environment}, cwd=ROOT)
        self.file.flush()
        self.file.seek(begin)
        text = self.file.read()
        return done.returncode, text

    def must(self, *command, **environment):
        status, text = self.start(*command, **environment)
        if status != 0:
            raise Failed(f"{os.path.basename(command[0])} ended with status {status}: {last_line(text)}")
        return status, text

    def gtest(self, name, cases, atomic=False, **environment):
        """Runs cases of a GoogleTest program; how many passed. A pattern that fits none has failed."""
        without = [] if atomic or self.atomics else list(ATOMIC_CASES)
        without += left_out_on_iwarp(name) if machine.is_iwarp(self.device) else []
        chosen = ":".join(cases) + ("-" + ":".join(without) if without else "")
        status, text = self.start(os.path.join(self.options.build, "tests", name), f"--gtest_filter={chosen}",
                                  "--gtest_color=no", **environment)
        begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.MULTILINE)
        results = cases_printed(name, text) or []
        failed = [case for case, outcome in results if outcome == CASE_FAILED]
        passed = sum(outcome == CASE_PASSED for _, outcome in results)
        skipped = len(results) - passed - len(failed)
        if status != 0 or failed:
            why = ", ".join(failed) or f"{name} ended with status {status}: {last_line(text)}"
            raise Failed(f"{passed} cases passed, {len(failed)} failed: {why}")
        for pattern in cases:
            if not fnmatch.filter(begun, pattern):
                raise Failed(f"{name} ran no case {pattern}")
        return (f"{passed} cases of {name}" + (f", {skipped} skipped" if skipped else "")
                + (" (none that needs what the device lacks)" if without else ""))

    @contextlib.contextmanager
    def server(self):
        """A server without data here, unless another host has one. Its log is in the step's."""
        if self.options.server:
            yield
            return
        options = types.SimpleNamespace(bin=self.bin(), transport="verbs", address=self.server_address)
        with contextlib.redirect_stderr(self.file), kvserver(options, memory="64MiB") as server:
            yield
            self.log(server.log_text())

    @contextlib.contextmanager
    def records(self):
        """A file of records of many lengths, from none to more than 128 KiB, which go another way."""
        count = 400 if self.options.quick else 20_000
        lengths = (0, 20, 100, 100, 300, 1000, 4000, 9000)
        with tempfile.TemporaryDirectory(prefix="rkv-hardware-") as scratch:
            path = os.path.join(scratch, "records.tsv")
            with open(path, "w", encoding="ascii") as file:
                for i in range(count):
                    length = 300_000 if i % 200 == 199 else lengths[i % len(lengths)]
                    value = hashlib.shake_256(str(i).encode()).hexdigest(length // 2)
                    file.write(f"hardware-{i}\t{value}\n")
            yield path

    # ---- one step after the other ----

    def step(self, step):
        """The verdict of a step, and a sentence."""
        limit_s = self.options.limit or step.limit_s
        signal.signal(signal.SIGALRM, raise_time_limit)
        signal.alarm(limit_s)
        try:
            return PASSED, step.run(self)
        except NotRun as reason:
            return NOT_RUN, str(reason)
        except TimeLimit:
            return FAILED, f"not done within {limit_s} s, its time limit"
        except (Failed, OSError, subprocess.SubprocessError, ValueError, KeyError) as problem:
            text = str(problem) or type(problem).__name__
            self.log(text)
            return FAILED, text.splitlines()[0].rstrip(":")
        finally:
            signal.alarm(0)

    def run_step(self, step):
        begin, verdict, note = time.monotonic(), FAILED, "ended by a signal"
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as self.file:
            try:
                verdict, note = self.step(step)
            finally:
                self.file.flush()
                self.file.seek(0)
                self.report.logs[step.name] = self.report.scrub(self.file.read())
                self.add(step, verdict, note, time.monotonic() - begin)

    def add(self, step, verdict, note, seconds=0.0):
        note = self.report.scrub(note)
        self.report.steps.append({"name": step.name, "verdict": verdict, "seconds": round(seconds, 1), "note": note})
        self.report.findings = [{key: self.report.scrub(str(value)) for key, value in finding.items()}
                                for finding in self.report.findings]
        say(f"{verdict:8} {step.name:9} {seconds:6.1f} s  {note}")
        self.report.write()

    def run(self):
        """The exit status."""
        before = machine.counters(self.device)
        left = list(steps_of(self.options))
        try:
            while left:
                step = left.pop(0)
                if self.options.only and step.name not in self.options.only:
                    self.add(step, NOT_RUN, "--only leaves it out")
                else:
                    self.run_step(step)
        except Ended as ended:
            self.report.ended = f"ended early by {signal.Signals(ended.args[0]).name}"
            for step in left:
                self.add(step, NOT_RUN, self.report.ended)
            return 128 + ended.args[0]
        finally:
            self.report.counters = machine.changed(before, machine.counters(self.device))
            self.report.write()
        return SOME_FAILED if self.report.outcomes(FAILED) else 0


# ---- the device ----

class NoDevice(Exception):
    """The text is a sentence for the user."""


def find_device(options):
    """(device, address)."""
    there = machine.devices()
    if not there:
        raise NoDevice(f"this machine has no RDMA device: {NO_DEVICE_HELP}")
    if options.device and options.device not in there:
        raise NoDevice(f"there is no RDMA device {options.device} here, but {', '.join(there)}")
    done = native(f"native_device {shlex.quote(options.device or '')}")
    if done.returncode == 0:
        device, address = done.stdout.split()
        return device, options.address or address
    if options.device and options.address:
        return options.device, options.address
    raise NoDevice(f"{options.device or ', '.join(there)}: no active port whose interface has an IPv4 address, or"
                   f" /dev/infiniband/rdma_cm is not there or not writable for this user; {NO_DEVICE_HELP}")


# ---- the program ----

def say(text):
    print(text, flush=True)


class Parser(argparse.ArgumentParser):
    """A mistake is one sentence."""

    def error(self, message):
        self.exit(USAGE, f"hardware: {message}; see ./run hardware --help\n")


def address_and_port(text):
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise argparse.ArgumentTypeError(f"is IP:PORT, not '{text}'")
    return text


def ipv4(text):
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is an IPv4 address, not '{text}'") from error


def port_number(text):
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"is 1 to 65535, not '{text}'")
    return int(text)


def parser_of_options():
    parser = Parser(prog="./run hardware", description=__doc__, allow_abbrev=False,
                    epilog="exit status: 0 every step that was run passed; 1 a step failed; 2 wrong options; 3 no"
                           " usable RDMA device; 130 ended by Ctrl-C, with a report of what was done")
    parser.add_argument("--device", metavar="NAME", help="RDMA device (default: the first that is active and has an address)")
    parser.add_argument("--address", metavar="IP", type=ipv4, help="IPv4 address of the device's interface (default: its first)")
    parser.add_argument("--port", type=port_number, default=PORT, help=f"port of the server that is started ({PORT})")
    parser.add_argument("--quick", action="store_true", help="fewer tests, fewer records, one repetition")
    parser.add_argument("--only", metavar="STEP,...", type=lambda text: text.split(","), help="these steps alone")
    parser.add_argument("--limit", metavar="SECONDS", type=at_least(1), help="time limit of each step (default: its own)")
    parser.add_argument("--report", metavar="FILE", type=new_file,
                        help="the report (build/hardware/report.md); FILE's name also with .json and -logs.tar.gz")
    parser.add_argument("--keep-addresses", action="store_true", help="leave host names and addresses in the report")
    parser.add_argument("--vm", action="store_true", help="on SoftRoCE in a small VM")
    parser.add_argument("--serve", action="store_true", help="run a server for another host, until Ctrl-C")
    parser.add_argument("--server", metavar="IP:PORT", type=address_and_port, help="test against --serve of another host")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(ROOT, "build/hardware"), help=argparse.SUPPRESS)
    parser.add_argument("--plan", action="store_true", help=argparse.SUPPRESS)  # prints what must be built
    return parser


def parse_options():
    parser = parser_of_options()
    options = parser.parse_args()
    for one, other in (("serve", "server"), ("serve", "vm"), ("server", "vm"), ("serve", "only")):
        if getattr(options, one) and getattr(options, other):
            parser.error(f"--{one} cannot be combined with --{other}")
    for name in options.only or ():
        if name not in [step.name for step in steps_of(options)]:
            parser.error(f"there is no step '{name}'; the steps are"
                         f" {', '.join(step.name for step in steps_of(options))}")
    if options.report and os.path.isdir(options.report):
        parser.error(f"--report is a file, and {options.report} is a directory")
    options.report = os.path.abspath(options.report or os.path.join(ROOT, "build/hardware/report.md"))
    if not options.plan:
        os.makedirs(os.path.dirname(options.report), exist_ok=True)
    return options


def programs_of(options):
    if options.serve:
        return ["kvserver"]
    chosen = [step for step in steps_of(options) if not options.only or step.name in options.only]
    return sorted({name for step in chosen for name in step.programs})


def revision():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], check=False, capture_output=True,
                          text=True)
    return done.stdout.strip() or os.environ.get("RKV_REVISION", "unknown")


def serve(options, address):
    """A server without data that any host may use, until a signal ends it."""
    listen = f"{address}:{options.port}"
    say(f"every host that reaches {listen} can read and write this server, which keeps nothing, until Ctrl-C"
        f"\non the other host: ./run hardware --server {listen}{' --quick' if options.quick else ''}")
    served = types.SimpleNamespace(bin=os.path.join(options.build, "bin"), transport="verbs", address=listen)
    try:
        with kvserver(served, memory="1GiB", extra=["--device", options.device] if options.device else []) as server:
            say("the server is ready")
            try:
                status = server.wait()
            except Ended:
                say("the server ends")
                return 0
            say(f"the server has ended with status {status}:\n{server.log_text()}")
    except Failed as problem:
        print(f"hardware: {problem}", file=sys.stderr)
    except Ended:
        say("ended before the server was ready")
    return SOME_FAILED


def raise_memlock():
    """As high as this user may; what it was is in the report."""
    for most in (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))
            return


def run_all(options, device, address):
    scrub = Scrubber(options.keep_addresses, replace={ROOT: ".", os.path.expanduser("~") + "/": "~/"})
    report = Report(options.report, scrub, machine.kind_of(device) + f" ({device})")
    arguments = [argument for argument in sys.argv[1:] if argument != "--vm"]
    report.command, report.revision = scrub("./run hardware " + " ".join(arguments)).strip(), revision()
    run = Run(options, device, address, report, machine.has_atomics(device))
    raise_memlock()
    say(f"{report.subject}; each step has a time limit; Ctrl-C leaves a report of what was done")
    status = run.run()
    say(f"\n{report.counts()}: {report.headline()}\nreport: {report.path}\n        {report.json_path}"
        f"\n        {report.archive_path}")
    return status


def run_in_vm(options):
    """The same command there, with this machine's folder of the report."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--vm"]
    vm = os.path.join(ROOT, "tests/softroce/vm.sh")
    os.execv(vm, [vm, "--out", os.path.dirname(options.report), "--", os.path.join(HERE, "hardware.py"), *arguments,
                  "--report", options.report])


def main():
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # rdma, dcb, ip for users other than root
    options = parse_options()
    device = address = None
    try:
        if not options.vm:
            device, address = find_device(options)
    except NoDevice as problem:
        print(f"hardware: {problem}", file=sys.stderr)
        return NO_DEVICE
    if options.plan:
        say(" ".join(programs_of(options)))
        return 0
    if options.vm:
        return run_in_vm(options)
    for number in SIGNALS:
        signal.signal(number, end_by_signal)
    if options.serve:
        raise_memlock()
        return serve(options, address)
    return run_all(options, device, address)


if __name__ == "__main__":
    sys.exit(main())
