"""What the benchmarks share: a run from its command line to its table, programs, waiting, medians."""

import argparse
import contextlib
import ctypes
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time


class Failed(Exception):
    """A measurement could not be taken; the text is one sentence for the user."""


class Misuse(Exception):
    """An option is invalid; the text is one sentence for the user."""


class Parser(argparse.ArgumentParser):
    """Tells what is wrong in one sentence; how it is used, --help tells."""

    def error(self, message):
        self.exit(2, f"{self.prog.removeprefix('./run ')}: {message}\n")


def at_least(least):
    """The type of a flag that is such a number."""
    def number(text):
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"is at least {least}, not {text}")
        return int(text)
    return number


def new_file(path):
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise argparse.ArgumentTypeError(f"no such folder: {os.path.dirname(path)}")
    return path


def python_client(options, script, store, *arguments):
    """Runs bench/SCRIPT STORE ARGUMENTS... with the Python package; the JSON object that it prints."""
    package = os.path.join(os.path.dirname(os.path.abspath(options.bin)), "python")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), script)
    done = subprocess.run([options.python, script, store, *map(str, arguments)], check=False, capture_output=True,
                          text=True, env=dict(os.environ, PYTHONPATH=package))
    if done.returncode != 0:
        raise Failed(f"the client of {store} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout)


def draw_bars(path, titles, groups, unit, highest="*"):
    """An SVG file, by gnuplot: for each group a bar of each title. groups: {"name": [heights]}."""
    data = "\n".join(f'"{name}" ' + " ".join(f"{height:.4f}" for height in bars) for name, bars in groups.items())
    columns = ", ".join(f"$bars using {i + 2}:xtic(1) title '{title}'" for i, title in enumerate(titles))
    script = (f"$bars << END\n{data}\nEND\nset terminal svg size 900,420 background rgb 'white'\nset output '{path}'\n"
              f"set style data histogram\nset style fill solid 0.8\nset ylabel '{unit}'\nset yrange [0:{highest}]\n"
              f"set key outside top center horizontal\nplot {columns}\n")
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def run_benchmark(name, measure, describe, flags, **defaults):
    """The whole of `./run bench NAME`: parses the command line, calls measure(options, figures),
    prints the table under the line that describe(options) gives, and writes --json.

    flags: {"--gets": (5000, "what it means")}, without a value if it is False; defaults: of the
    flags that all benchmarks have.
    Returns the exit status: 0, or 2 (an option is invalid) or 4 after one sentence that says
    what went wrong."""
    parser = Parser(prog=f"./run bench {name}", description=sys.modules["__main__"].__doc__)
    parser.add_argument("--json", metavar="FILE", type=new_file, help="also write the figures to FILE")
    parser.add_argument("--transport", choices=["verbs", "shm"])
    parser.add_argument("--repetitions", type=at_least(1))
    parser.add_argument("--poll", choices=["adaptive", "busy", "event"],
                        help="how the client waits (perftest always spins)")
    parser.add_argument("--bin", help="directory of the programs")
    parser.add_argument("--address", help="HOST:PORT of the server to start")
    for flag, (value, text) in flags.items():
        if value is False:
            parser.add_argument(flag, action="store_true", help=text)
            continue
        parser.add_argument(flag, type=at_least(min(value, 1)) if isinstance(value, int) else str,
                            default=value, help=f"{text} ({value})")
    parser.set_defaults(**{
        "transport": "shm", "repetitions": 5, "poll": "adaptive", "bin": "build/release/bin",
        "address": default_address(), **defaults})
    options = parser.parse_args()
    figures = Figures()
    try:
        measure(options, figures)
    except (Failed, Misuse, OSError, subprocess.SubprocessError) as problem:
        print(f"bench {name}: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, Misuse) else 4
    about = environment(options.transport)
    print(f"\n{about['note']}, Linux {about['kernel']}; {describe(options)}; the client polls"
          f" {options.poll}")
    table = figures.print()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"environment": {**about, **vars(options), "command": " ".join(sys.argv)},
                       "figures": table, "runs": figures.runs}, out, indent=2)
            out.write("\n")
    return 0


def default_address():
    return os.environ.get("RKV_RDMA_ADDRESS", "127.0.0.1") + ":7471"


def environment(transport):
    """What it runs on; `note` is for people."""
    cpu = subprocess.run(["lscpu"], check=False, capture_output=True, text=True).stdout
    model = re.search(r"Model name:\s*(.*)", cpu)
    about = {"kernel": platform.release(), "cores": os.cpu_count(),
             "cpu": model.group(1) if model else "unknown"}
    if transport != "verbs":
        return {**about, "note": "shared memory" if transport == "shm" else "TCP, not RDMA"}
    device = subprocess.run(["ibv_devinfo"], check=False, capture_output=True, text=True).stdout
    name = re.search(r"hca_id:\s*(\S+)", device)
    mtu = re.search(r"active_mtu:\s*(\d+)", device)
    rxe = bool(name and name.group(1).startswith("rxe"))
    about |= {"device": name.group(1) if name else "unknown",
              "active_mtu": int(mtu.group(1)) if mtu else None}
    kind = "SoftRoCE (not representative of hardware)" if rxe else "hardware"
    return {**about, "note": f"{kind}, {about['device']}, MTU {about['active_mtu']}"}


def progress(text):
    print(f"  {text}", file=sys.stderr, flush=True)


def wait_for(condition, what, process, limit_s=120):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return
        if process.poll() is not None:
            raise Failed(f"{what}: the process ended with status {process.returncode}")
        time.sleep(0.02)
    raise Failed(f"{what}: nothing within {limit_s} s")


def without_huge_pages():
    """For a child process: the system gives it none unasked (prctl(2), PR_SET_THP_DISABLE)."""
    if ctypes.CDLL(None, use_errno=True).prctl(41, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


@contextlib.contextmanager
def kvserver(options, memory="256MiB", extra=(), address=None, wait=True, prepare=None):
    """A kvserver on options.address, ready unless `wait` is False; its log (read it by .log_text())
    is shown when the body fails. The body may kill it. `prepare` is called in its process."""
    with tempfile.NamedTemporaryFile("w+", prefix="rkv-bench-", suffix=".log") as log:
        def log_text():
            with open(log.name, encoding="utf-8") as text:
                return text.read()
        server = subprocess.Popen(
            [os.path.join(options.bin, "kvserver"), "--transport", options.transport, "--no-auth", "--listen",
             address or options.address, "--memory", memory, *extra],
            stdout=log, stderr=subprocess.STDOUT, preexec_fn=prepare)
        server.log_text = log_text
        try:
            if wait:
                wait_for(lambda: "kvserver ready" in log_text(), "kvserver", server)
            yield server
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
                server.wait(timeout=60)
        except BaseException:
            print(log_text(), file=sys.stderr)
            raise
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()


def program(options, name, phase, prefix=(), **settings):
    """Runs one phase of a benchmark program; settings are its flags. What it prints, as a
    dictionary."""
    flags = {"server": options.address, "transport": options.transport, "poll": options.poll,
             "phase": phase, **settings}
    command = [*prefix, os.path.join(options.bin, name)]
    for flag, value in flags.items():
        command += [f"--{flag.replace('_', '-')}", str(value)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"{name} --phase {phase} ended with status {done.returncode}")
    return json.loads(done.stdout)


class Figures:
    """Samples by name, with what each aims at; None = no aim. `runs`: what the programs said."""

    def __init__(self):
        self.goals, self.samples, self.runs = {}, {}, []

    def add(self, name, value, aim=None, higher=False):
        self.goals.setdefault(name, (aim, higher))
        self.samples.setdefault(name, []).append(value)

    def print(self):
        """The table, and the same for --json."""
        width = max([44, *(len(name) + 1 for name in self.goals)])
        print(f"{'figure':{width}}{'median':>15}{'min':>15}{'max':>15}{'aim':>10}  holds")
        table = []
        for name, (aim, higher) in self.goals.items():
            values = self.samples[name]
            median = statistics.median(values)
            holds = None if aim is None else (median >= aim if higher else median <= aim)
            table.append({"name": name, "figure": median, "min": min(values), "max": max(values),
                          "goal": aim, "holds": holds, "samples": values})
            goal = "" if aim is None else (">= " if higher else "<= ") + str(aim)
            verdict = "" if holds is None else ("yes" if holds else "NO")
            print(f"{name:{width}}{median:15,.3f}{min(values):15,.3f}{max(values):15,.3f}{goal:>10}"
                  f"  {verdict}")
        return table
