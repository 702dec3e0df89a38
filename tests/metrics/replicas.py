"""A replicated group of kvservers with an etcd of its own, over shared memory."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile

from kv import LIMIT_S, Server, wait_until


def kept_port():
    """A free port, and a socket that keeps it free for one who listens with SO_REUSEADDR."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper, keeper.getsockname()[1]


class Ports:
    """Ports below those that the system chooses, fixed because a replica may start again by itself.
    Each test program has a hundred of its own: it holds an abstract socket that names them."""
    claim = None
    free = iter(())

    @classmethod
    def next_four(cls):
        if cls.claim is None:
            cls.claim = socket.socket(socket.AF_UNIX)
            for number in range(60):
                try:
                    cls.claim.bind(f"\0rkv-test-ports-{number}")
                except OSError:
                    continue
                cls.free = iter(range(26000 + 100 * number, 26100 + 100 * number, 4))
                break
        return next(cls.free)


class Etcd:
    def __init__(self):
        self.scratch = tempfile.mkdtemp(prefix="rkv-etcd-")
        self.keepers, ports = zip(*(kept_port() for _ in range(2)))
        self.address = f"127.0.0.1:{ports[0]}"
        self.peers = f"http://127.0.0.1:{ports[1]}"
        self.process = None
        self.secret = os.path.join(self.scratch, "group.secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write("7" * 64)
        self.start()

    def start(self):
        client = "http://" + self.address
        with open(os.path.join(self.scratch, "log"), "ab") as log:
            self.process = subprocess.Popen(
                ["etcd", "--data-dir", os.path.join(self.scratch, "data"),
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", self.peers, "--initial-advertise-peer-urls", self.peers,
                 "--initial-cluster", "default=" + self.peers],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self.answers, "etcd")

    def control(self, *arguments):
        """Exit status of etcdctl."""
        return subprocess.run(["etcdctl", "--endpoints", self.address, *arguments],
                              capture_output=True, timeout=LIMIT_S, check=False,
                              env=dict(os.environ, ETCDCTL_API="3")).returncode

    def answers(self):
        return self.control("endpoint", "health") == 0

    def lose_data(self):
        self.stop()
        shutil.rmtree(os.path.join(self.scratch, "data"))
        self.start()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)

    def close(self):
        self.stop()
        for keeper in self.keepers:
            keeper.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


class Replica(Server):
    """`start()` returns once it shows its metrics. It may be a backup then."""

    def __init__(self, binaries, etcd, name, *arguments):
        first = Ports.next_four()
        listen = f"127.0.0.1:{first}"
        super().__init__(binaries, "--etcd", etcd.address, "--group", "g1", "--name", name, "--memory",
                         "32MiB", "--group-secret", etcd.secret, *arguments, listen=listen,
                         metrics=str(first + 2))
        self.name = name
        self.address = listen
        self.port = first + 2

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=self.environment)
        wait_until(lambda: self.ready()[0], "the metrics")
        return self

    def ready(self):
        """Status and text of /readyz; 0 while the process starts."""
        if self.process.poll() is not None:
            raise AssertionError("kvserver has ended:\n" + self.log())
        try:
            status, _, text = self.get("/readyz")
            return status, text
        except OSError:
            return 0, ""

    def group(self):
        return self.status().get("group", {})

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT_S)


class Group:
    """`with Group(bin, 3) as group:`; all are in sync, and group.replicas[0] is the primary."""

    def __init__(self, binaries, count, *arguments):
        self.etcd = Etcd()
        self.replicas = [Replica(binaries, self.etcd, f"n{i + 1}", *(["--found-group"] if i == 0 else []),
                                 *arguments) for i in range(count)]

    def __enter__(self):
        try:
            for replica in self.replicas:
                replica.start()
                wait_until(lambda replica=replica: replica.ready()[0] == 200, replica.name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for replica in self.replicas:
            if replica.process is not None:
                Server.__exit__(replica)
            else:
                shutil.rmtree(replica.scratch, ignore_errors=True)
        self.etcd.close()

    def logs(self):
        return "\n".join(f"== {replica.name}\n{replica.log()}" for replica in self.replicas)
