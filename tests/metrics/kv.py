"""A kvserver under test with its HTTP endpoint, and the programs that use it. No fixed ports: the
server takes free ones and its log says which."""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

LIMIT_S = 60  # for anything that is waited for; far more than it takes


def wait_until(condition, what):
    """The first true value of condition(). Looks every 10 ms; fails after LIMIT_S."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("timed out waiting for " + what)


class Server:
    """`with Server(bin, "--memory", "64MiB") as server:`; stopped and looked after at the end."""

    def __init__(self, binaries, *arguments, metrics="0", listen="127.0.0.1:0", disk=True,
                 environment=None):
        self.bin = binaries
        self.scratch = tempfile.mkdtemp(prefix="rkv-metrics-")
        self.log_path = os.path.join(self.scratch, "log")
        self.command = [os.path.join(binaries, "kvserver"), "--transport", "shm", "--listen", listen,
                        "--threads", "2", *arguments]
        if metrics is not None:
            self.command += ["--metrics", metrics]
        if disk:
            self.command += ["--data-dir", os.path.join(self.scratch, "data")]
        self.environment = dict(os.environ, **(environment or {}))
        self.process = None
        self.port = self.address = None

    def start(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=self.environment)
        found = wait_until(lambda: self.found(r"kvserver ready: listening on ([^ ]*)"), "the start")
        self.address = found.group(1)
        metrics = self.found(r"page on http://([^ ]*):(\d+)/")
        self.port = int(metrics.group(2)) if metrics else None
        return self

    def found(self, pattern):
        match = re.search(pattern, self.log())
        if not match and self.process.poll() is not None:
            raise AssertionError("kvserver has ended:\n" + self.log())
        return match

    def log(self):
        with open(self.log_path, encoding="utf-8") as log:
            return log.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # ---- what it says of itself

    def get(self, path, verb="GET"):
        """Status, headers, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(verb, path)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def fresh(self, path):
        """An answer made after this was called: those of 0.1 s may be one. They differ at least in
        the time that the server has used."""
        before = self.get(path)
        return wait_until(lambda: (now := self.get(path))[2] != before[2] and now, "a new answer")

    def status(self):
        return json.loads(self.fresh("/status")[2])

    def metrics(self):
        return parse_metrics(self.fresh("/metrics")[2])

    # ---- its clients

    def client(self, *arguments, status=0, text=None):
        ended = subprocess.run([os.path.join(self.bin, "kvclient"), "--transport", "shm", "--server",
                                self.address, *arguments], input=text, capture_output=True, text=True,
                               timeout=LIMIT_S, check=False)
        if status is not None and ended.returncode != status:
            raise AssertionError(f"kvclient {arguments}: {ended.returncode}\n{ended.stderr}")
        return ended.stdout

    def bench(self, *arguments):
        """A kvbench under way."""
        workload = os.path.join(os.path.dirname(__file__), "../../bench/kvbench/workloads/workloada")
        return subprocess.Popen([os.path.join(self.bin, "kvbench"), *arguments, "-P", workload,
                                 "--transport", "shm", "--server", self.address],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def parse_metrics(text):
    """{'name{label="value"}': number}, labels as they are written."""
    values = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, value = line.rsplit(" ", 1)
        assert name not in values, "twice: " + name
        values[name] = float(value)
    return values
