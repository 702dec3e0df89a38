"""Programs that run in containers beside the steps of the demonstration: a writer and a benchmark."""

import itertools
import re
import threading
import time

from machinery import Failed, last_line

ENDS_WITHIN_S = 120  # the last operation has a time-out of its own


def await_that(condition, limit_s, sentence, every_s=0.05):
    """Until the condition holds."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"{sentence} within {limit_s} s")
        time.sleep(every_s)


class Writer:
    """A kvclient that puts one record after the other, and notes which were acknowledged, and when.

    `process` is the kvclient as a shell with JSON for output, its complaints among the output: each
    command has one line of answer."""

    def __init__(self, process):
        self._process = process
        self._stopping = threading.Event()
        self.acknowledged = []  # numbers, ascending
        self.times = []  # of these answers
        self.failures = []  # what the others were answered
        self._said = []  # besides answers
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @staticmethod
    def record(number):
        return f"writer-{number}", f"value {number}"

    def records(self):
        """What was acknowledged, as a file of records."""
        return "".join("\t".join(self.record(number)) + "\n" for number in self.acknowledged).encode()

    def await_more(self, count, limit_s):
        """Until so many more records than now are acknowledged."""
        wanted = len(self.acknowledged) + count
        await_that(lambda: len(self.acknowledged) >= wanted or not self._thread.is_alive(), limit_s,
                   f"the writer got no {count} answers")
        if len(self.acknowledged) < wanted:
            raise Failed(f"the writer has ended: {last_line(chr(10).join(self._said + self.failures))}")

    def longest_wait_after(self, moment):
        """Seconds between two acknowledgements, of which the second came after this moment."""
        return max(after - before for before, after in itertools.pairwise(self.times) if after > moment)

    def stop(self):
        self._stopping.set()
        self._thread.join(ENDS_WITHIN_S)
        if self._thread.is_alive():
            raise Failed(f"the writer's last record was not answered within {ENDS_WITHIN_S} s")
        self._process.stdin.close()
        self._process.wait()

    def _run(self):
        try:
            for number in itertools.count():
                if self._stopping.is_set() or not self._write(number):
                    return
        except (OSError, ValueError):  # the process has ended, or its streams are closed
            return

    def _write(self, number):
        """False: there will be no answer."""
        key, value = self.record(number)
        self._process.stdin.write(f"put {key} '{value}'\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                self.times.append(time.monotonic())
                self.acknowledged.append(number)
                return True
            if line.startswith("kvclient: "):
                self.failures.append(line.strip())
                return True
            self._said.append(line.strip())
        return False


class Benchmark:
    """A kvbench that runs until it is told to end, with status lines (-s) among its output."""

    def __init__(self, process):
        self._process = process
        self._lines = []
        self._operations = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def await_operations(self, count, limit_s):
        await_that(lambda: self._operations >= count or not self._thread.is_alive(), limit_s,
                   f"the benchmark made no {count} operations")
        if not self._thread.is_alive():
            raise Failed(f"the benchmark has ended: {last_line(chr(10).join(self._lines))}")

    def output(self):
        """All of it. REQUIRES that it was told to end."""
        self._thread.join(ENDS_WITHIN_S)
        if self._thread.is_alive():
            raise Failed(f"the benchmark did not end within {ENDS_WITHIN_S} s")
        self._process.wait()
        return "".join(self._lines)

    def _run(self):
        try:
            for line in self._process.stdout:
                self._lines.append(line)
                progress = re.search(r" sec: (\d+) operations; ", line)
                if progress:
                    self._operations = int(progress[1])
        except (OSError, ValueError):  # its streams are closed
            return
