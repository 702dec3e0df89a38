"""What the benchmarks share: programs, waiting, medians, tables."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time


class Failed(Exception):
    """A measurement could not be taken; the text is one sentence for the user."""


def wait_for(condition, what, process, limit_s=120):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return
        if process.poll() is not None:
            raise Failed(f"{what}: the process ended with status {process.returncode}")
        time.sleep(0.02)
    raise Failed(f"{what}: nothing within {limit_s} s")


@contextlib.contextmanager
def kvserver(options, transport, memory="256MiB", extra=()):
    """A kvserver on options.address; its log is shown when the body fails."""
    with tempfile.NamedTemporaryFile("w+", prefix="rkv-bench-", suffix=".log") as log:
        server = subprocess.Popen(
            [os.path.join(options.bin, "kvserver"), "--transport", transport, "--listen",
             options.address, "--memory", memory, *extra], stdout=log, stderr=subprocess.STDOUT)
        try:
            ready = lambda: "kvserver ready" in open(log.name, encoding="utf-8").read()
            wait_for(ready, "kvserver", server)
            yield server
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
        except BaseException:
            with open(log.name, encoding="utf-8") as text:
                print(text.read(), file=sys.stderr)
            raise
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()


def program(options, name, prefix=(), **flags):
    """Runs a benchmark program; what it prints, as a dictionary."""
    command = [*prefix, os.path.join(options.bin, name)]
    for flag, value in flags.items():
        command += [f"--{flag.replace('_', '-')}", str(value)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"{name} --phase {flags['phase']} ended with status {done.returncode}")
    return json.loads(done.stdout)


def bench_get(options, phase, prefix=(), **settings):
    """One phase of bench_get; settings are its flags."""
    return program(options, "bench_get", prefix,
                   **{"server": options.address, "phase": phase, "poll": options.poll, **settings})


class Figures:
    """Samples by name, with what each aims at; None = no aim."""

    def __init__(self):
        self.goals, self.samples, self.runs = [], {}, []

    def add(self, name, value, aim=None, higher=False):
        if name not in self.samples:
            self.goals.append((name, aim, higher))
            self.samples[name] = []
        self.samples[name].append(value)

    def print(self):
        return print_figures(self.goals, self.samples)


def print_figures(goals, samples):
    """The table of `goals` (name, aim, higher is better; aim None = no aim), and the same for
    --json."""
    print(f"{'figure':44}{'median':>15}{'min':>15}{'max':>15}{'aim':>10}  holds")
    figures = []
    for name, aim, higher in goals:
        values = samples[name]
        median = statistics.median(values)
        holds = None if aim is None else (median >= aim if higher else median <= aim)
        figures.append({"name": name, "figure": median, "min": min(values), "max": max(values),
                        "goal": aim, "holds": holds, "samples": values})
        goal = "" if aim is None else (">= " if higher else "<= ") + str(aim)
        verdict = "" if holds is None else ("yes" if holds else "NO")
        print(f"{name:44}{median:15,.3f}{min(values):15,.3f}{max(values):15,.3f}{goal:>10}  {verdict}")
    return figures


def write_json(path, environment, figures, runs):
    if not path:
        return
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"environment": environment, "figures": figures, "runs": runs}, out, indent=2)
        out.write("\n")
