#!/usr/bin/env python3
"""What surrounds the programs: standard descriptors that are closed, full or not read, input without
end, files with a mode or an owner of others, directories of strangers, addresses of a proxy.

    tests/system/surroundings_test.py BIN [unittest's arguments]     BIN: the folder of the programs
"""

import contextlib
import fcntl
import os
import pty
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "metrics"))
from replicas import Etcd, Ports  # noqa: E402

LIMIT_S = 60  # for anything that is waited for; far more than it takes
ATTACKER, VICTIM, GROUP = 54011, 54012, 54013  # numbers that no user of a machine has
WORKLOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "kvbench", "workloads",
                        "workloadc")
IS_ROOT = os.geteuid() == 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, what):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("timed out waiting for " + what)


def unread_pipe():
    """A pipe with little room, and its two ends."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    return reader, writer


def full_pipe():
    reader, writer = unread_pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 512)
    os.set_blocking(writer, True)
    return reader, writer


def drained(reader):
    """What is in the pipe, until its writers are gone."""
    text = b""
    while piece := os.read(reader, 65536):
        text += piece
    return text.decode()


class Surroundings(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="rkv-around-")
        self.addCleanup(shutil.rmtree, self.scratch)
        os.chmod(self.scratch, 0o755)
        self.sockets = os.path.join(self.scratch, "shm")
        os.mkdir(self.sockets)
        self.port = free_port()
        self.environment = dict(os.environ, RKV_SHM_DIR=self.sockets, KVCLIENT_TRANSPORT="shm",
                                KVCLIENT_TIMEOUT="10s", KVCLIENT_SERVER=self.address())
        for name in ("RKV_TEST_TRANSPORT", "KVSERVER_TRANSPORT"):
            self.environment.pop(name, None)

    def address(self):
        return f"127.0.0.1:{self.port}"

    def path(self, name, text=None, mode=0o600):
        path = os.path.join(self.scratch, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, mode)
        return path

    def serve(self, *arguments, transport="shm", ready=True, memory="64MiB", log="log", **settings):
        """A kvserver that is killed at the end; its log is self.log()."""
        command = [os.path.join(BIN, "kvserver"), "--listen", self.address(), "--transport", transport,
                   "--memory", memory, "--threads", "1", *arguments]
        settings.setdefault("env", self.environment)
        if "stderr" not in settings:
            settings["stderr"] = open(self.path(log), "wb")  # pylint: disable=consider-using-with
            self.addCleanup(settings["stderr"].close)
        server = subprocess.Popen(command, **settings)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        if ready:
            wait_until(lambda: "kvserver ready" in self.log(log) or server.poll() is not None, "the start")
            self.assertIsNone(server.poll(), self.log(log))
        return server

    def log(self, name="log"):
        with open(self.path(name), encoding="utf-8", errors="replace") as log:
            return log.read()

    def await_service(self, server):
        """Without a log."""
        wait_until(lambda: self.client("ping", "--timeout", "1s").returncode == 0 or
                   server.poll() is not None, "the start")
        self.assertIsNone(server.poll())

    def client(self, *arguments, program="kvclient", **settings):
        settings.setdefault("env", self.environment)
        if "stderr" not in settings:
            settings["stderr"] = subprocess.PIPE
        return subprocess.run([os.path.join(BIN, program), *arguments], check=False, text=True,
                              stdout=subprocess.PIPE, timeout=2 * LIMIT_S, **settings)

    def stops(self, server, status=0):
        server.terminate()
        self.assertEqual(server.wait(LIMIT_S), status)


class StandardDescriptors(Surroundings):
    def test_a_log_that_nobody_reads_stops_nothing(self):
        reader, writer = unread_pipe()
        server = self.serve("--data-dir", self.path("data"), "--log-level", "debug", stderr=writer, ready=False)
        os.close(writer)
        self.await_service(server)
        for _ in range(40):  # each connects and disconnects: more lines than the pipe takes
            done = self.client("put", "key", "value")
            self.assertEqual(done.returncode, 0, done.stderr)
        server.send_signal(signal.SIGHUP)
        self.assertEqual(self.client("get", "key").stdout, "value")
        server.terminate()
        self.assertEqual(server.wait(LIMIT_S), 0)
        os.close(reader)

    def test_a_primary_whose_log_nobody_reads_serves_and_hands_over(self):
        etcd = Etcd()
        self.addCleanup(etcd.close)
        secret = self.path("secret", "ab" * 32 + "\n")
        pipes = []
        servers = []
        for name in "one", "two":
            reader, writer = full_pipe()
            pipes.append(reader)
            self.port = Ports.next_four()
            servers.append(self.serve("--etcd", etcd.address, "--group", "quiet", "--name", name, "--log-level", "debug",
                                      "--group-secret", secret, "--data-dir", self.path(name),
                                      *(["--found-group"] if name == "one" else []), stderr=writer, ready=False))
            os.close(writer)
            self.environment["KVCLIENT_SERVER"] = ",".join(
                filter(None, (self.environment["KVCLIENT_SERVER"] if servers[1:] else "", self.address())))
            self.await_service(servers[0])
        for _ in range(20):
            self.assertEqual(self.client("put", "key", "value").returncode, 0)

        def both_in_sync():
            said = self.client("admin", "groups").stdout
            return said.count("in sync") == 2 and "not in sync" not in said
        wait_until(both_in_sync, "the second replica")
        self.stops(servers[0])
        wait_until(lambda: self.client("get", "key").stdout == "value", "the second as the primary")
        self.stops(servers[1])
        for reader in pipes:
            os.close(reader)

    def test_what_the_reader_finds_when_it_comes_back(self):
        """Lines for which there is no room are counted: LogWriterTest."""
        reader, writer = full_pipe()
        server = self.serve("--log-format", "json", stderr=writer, ready=False)
        os.close(writer)
        self.await_service(server)
        text = []
        thread = threading.Thread(target=lambda: text.append(drained(reader)))
        thread.start()
        self.stops(server)
        thread.join(LIMIT_S)
        self.assertIn("kvserver ready", text[0])
        self.assertIn('"event":"stopping"', text[0])
        os.close(reader)

    def test_the_signal_to_end_works_while_the_start_is_not_read(self):
        reader, writer = full_pipe()
        server = self.serve("--data-dir", self.path("data"), stderr=writer, ready=False)
        os.close(writer)
        self.await_service(server)
        self.stops(server)
        os.close(reader)

    def test_a_reader_that_leaves_a_full_disk_and_a_terminal_that_hangs_up(self):
        reader, writer = os.pipe()
        master, terminal = pty.openpty()
        with open("/dev/full", "wb") as full:
            for error, leave in ((writer, lambda: os.close(reader)), (full, lambda: None),
                                 (terminal, lambda: os.close(master))):
                server = self.serve("--data-dir", self.path("data"), stderr=error, ready=False,
                                    start_new_session=True)
                if error in (writer, terminal):
                    os.close(error)
                self.await_service(server)
                leave()
                for _ in range(3):
                    self.assertEqual(self.client("put", "key", "value").returncode, 0)
                self.stops(server)

    def test_no_file_of_the_data_gets_a_standard_descriptor(self):
        for closed in ((2,), (0, 1, 2), (1,), (0,)):
            def close(numbers=closed):
                for number in numbers:
                    os.close(number)
            server = self.serve("--data-dir", self.path("data"), stderr=None, ready=False,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=close)
            self.await_service(server)
            for number in closed:
                self.assertEqual(os.readlink(f"/proc/{server.pid}/fd/{number}"), "/dev/null")
            with open(self.path("data/LOCK"), encoding="utf-8") as lock:
                self.assertEqual(lock.read().split()[0], str(server.pid))
                lock.seek(0)
                self.assertEqual(lock.read().count("\n"), 1)
            second = self.client("--data-dir", self.path("data"), "--listen", f"127.0.0.1:{free_port()}",
                                 program="kvserver")
            self.assertEqual(second.returncode, 6)
            self.assertIn(f"in use by process {server.pid}", second.stderr)
            self.stops(server)

    def in_each_way(self, expected, *arguments, program="kvclient", **settings):
        """The exit status is the same wherever the sentence goes."""
        def close():
            os.close(2)
        reader, writer = os.pipe()
        os.close(reader)
        with open("/dev/full", "wb") as full, open("/dev/null", "wb") as null:
            for way, more in (("read", {}), ("full disk", {"stderr": full}), ("no reader", {"stderr": writer}),
                              ("closed", {"stderr": null, "preexec_fn": close})):
                done = self.client(*arguments, program=program, **settings, **more)
                self.assertEqual(done.returncode, expected, f"{arguments}, standard error: {way}; {done.stderr}")
        os.close(writer)

    def test_a_sentence_that_cannot_be_written_changes_no_exit_status(self):
        server = self.serve("--data-dir", self.path("data"), memory="512MiB")
        self.client("put", "a", "b")
        self.in_each_way(1, "get", "nokey")
        self.in_each_way(5, "put", "--if-absent", "a", "b")
        self.in_each_way(2, "bogus")
        self.in_each_way(3, "--server", f"127.0.0.1:{free_port()}", "--timeout", "100ms", "get", "a")
        self.in_each_way(1, input="get nokey\nput later v\n")
        self.assertEqual(self.client("get", "later").stdout, "v")
        self.in_each_way(0, "load", "--skip-bad", "-", input="a1\tb\nno tab here\nc1\td\n")
        self.assertEqual(self.client("get", "c1").stdout, "d")
        records = "".join(f"k{i}\t{'0' * 400}\n" for i in range(300_000))
        path = self.path("in.tsv", records)
        self.in_each_way(0, "load", "--progress", path)
        self.in_each_way(0, "dump", "--progress", self.path("out.tsv"))
        bench = ("-t", "-s", "-P", WORKLOAD, "-p", "recordcount=9", "-p", "operationcount=9", "--server",
                 self.address())
        done = self.client(*bench, program="kvbench")
        self.assertIn("the first record", done.stderr)
        self.in_each_way(done.returncode, *bench, program="kvbench")
        self.in_each_way(2, "--memory", "nonsense", program="kvserver")
        self.stops(server)

    def test_a_standard_error_that_nobody_reads_is_not_awaited_without_end(self):
        reader, writer = full_pipe()
        self.serve()
        began = time.monotonic()
        self.assertEqual(self.client("get", "nokey", stderr=writer).returncode, 1)
        self.assertLess(time.monotonic() - began, LIMIT_S / 2)
        os.close(reader)
        os.close(writer)

    def test_closed_input_and_output_are_told(self):
        self.serve()
        self.client("put", "a", "b")
        done = self.client("load", "-", preexec_fn=lambda: os.close(0))
        self.assertEqual((done.returncode, done.stderr), (4, "kvclient: cannot read standard input: Bad file descriptor\n"))
        self.assertEqual(self.client(preexec_fn=lambda: os.close(0)).returncode, 4)
        done = self.client("get", "a", preexec_fn=lambda: os.close(1))
        self.assertEqual((done.returncode, done.stderr), (4, "kvclient: cannot write to standard output\n"))


class Input(Surroundings):
    def resident(self, expected, *arguments, program="kvclient", stdin="/dev/zero"):
        """Megabytes at most, and standard error."""
        with open(stdin, "rb") as zero, open(self.path("error"), "w+", encoding="utf-8") as error:
            child = subprocess.Popen([os.path.join(BIN, program), *arguments], stdin=zero, stdout=subprocess.DEVNULL,
                                     stderr=error, env=self.environment,
                                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
            timer = threading.Timer(2 * LIMIT_S, child.kill)
            timer.start()
            _, status, usage = os.wait4(child.pid, 0)
            timer.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
            error.seek(0)
            text = error.read()
        self.assertEqual(child.returncode, expected, text)
        return usage.ru_maxrss // 1024, text

    def test_input_without_end_is_refused(self):
        self.serve()
        for expected, most_mb, sentence, *arguments in (
                (2, 150, "more than 16777216 bytes", "put", "-x", "key"),
                (4, 450, "the line has more than", "load", "-"),
                (4, 450, "the line has more than", "load", "--format", "jsonl", "-"),
                (4, 450, "the line has more than", "load", "--format", "deb822", "-"),
                (4, 450, "the line has more than", "verify", "-"),
                (4, 100, "the line has more than", "dump", "--keys", "-"),
                (2, 300, "a line of standard input has more than")):
            used, text = self.resident(expected, *arguments)
            self.assertIn(sentence, text, arguments)
            self.assertLess(used, most_mb, arguments)
        used, text = self.resident(2, "-t", "-P", "/dev/zero", program="kvbench")
        self.assertIn("larger than 1 MiB", text)
        self.assertLess(used, 100)

    def test_what_is_within_the_bounds_is_taken(self):
        self.serve("--data-dir", self.path("data"), memory="256MiB")
        value = b"\x01" * (16 << 20)
        done = subprocess.run([os.path.join(BIN, "kvclient"), "put", "-x", "key"], input=value, check=False,
                              env=self.environment, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        dumped = self.path("dump")
        for form in "tsv", "jsonl":
            self.assertEqual(self.client("dump", "--format", form, dumped).returncode, 0)
            done = self.client("load", "--verify", dumped)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_pipe_without_a_writer_is_not_awaited_in_silence(self):
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        for program, arguments in (("kvserver", ("--config", fifo)), ("kvclient", ("--servers-file", fifo, "ping")),
                                   ("kvbench", ("-t", "-P", fifo))):
            began = time.monotonic()
            done = self.client(*arguments, program=program)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("nobody writes into this pipe", done.stderr)
            self.assertLess(time.monotonic() - began, LIMIT_S / 2)

    def test_a_pipe_with_a_writer_is_read(self):
        reader, writer = os.pipe()
        thread = threading.Timer(0.3, lambda: (os.write(writer, b'memory = "nonsense"\n'), os.close(writer)))
        thread.start()
        done = self.client("--config", f"/dev/fd/{reader}", program="kvserver", pass_fds=(reader,))
        self.assertEqual(done.returncode, 2)
        self.assertIn("nonsense", done.stderr)
        os.close(reader)


class Limits(Surroundings):
    def test_a_limit_of_file_sizes_is_named(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        done = self.client("--listen", self.address(), "--memory", "64MiB", program="kvserver", preexec_fn=limit)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("ulimit -f", done.stderr)
        self.serve()
        done = self.client("put", "-x", "long", input="x" * 300_000,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assertEqual(done.returncode, 4)
        self.assertIn("ulimit -f", done.stderr)

    def test_a_relative_directory_of_sockets_is_refused(self):
        environment = dict(self.environment, RKV_SHM_DIR="here")
        done = self.client("--listen", self.address(), "--transport", "shm", program="kvserver", env=environment)
        self.assertIn(done.returncode, (2, 3), done.stderr)
        self.assertIn("absolute path", done.stderr)
        done = self.client("get", "a", env=environment)
        self.assertEqual(done.returncode, 3)
        self.assertIn("absolute path", done.stderr)

    def test_more_threads_than_places_are_told(self):
        self.serve("--max-clients", "8")
        began = time.monotonic()
        arguments = ("-P", WORKLOAD, "--server", self.address(), "-p", "recordcount=100", "-p", "operationcount=100")
        done = self.client("-load", "-threads", "9", *arguments, program="kvbench")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--max-clients 10", done.stderr)
        self.assertLess(time.monotonic() - began, LIMIT_S / 2)
        done = self.client("-load", "-threads", "7", *arguments, program="kvbench")
        self.assertEqual(done.returncode, 0, done.stderr)


class Terminal(Surroundings):
    NASTY = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f"

    def on_a_terminal(self, *arguments):
        master, terminal = pty.openpty()
        child = subprocess.Popen([os.path.join(BIN, "kvclient"), *arguments], env=self.environment,
                                 stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
        os.close(terminal)
        text = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while select.select([master], [], [], LIMIT_S)[0]:
                text += os.read(master, 65536)
        child.wait(LIMIT_S)
        os.close(master)
        return text

    def test_bytes_of_others_do_not_command_it(self):
        self.serve("--data-dir", self.path("data"))
        nasty = self.NASTY.encode()
        key = b"key-" + nasty
        subprocess.run([os.path.join(BIN, "kvclient"), "put", key, nasty], env=self.environment, check=True)
        for arguments in (("get", key), ("mget", key), ("scan",), ("get", key + b"-absent"), ("get", key + b"x" * 2000)):
            text = self.on_a_terminal(*arguments)
            for byte in (b"\x1b", b"\x07", b"\xc2\x9b", b"\x7f"):
                self.assertNotIn(byte, text, arguments)
        self.assertIn(b"\\x1b]0;title\\x07", self.on_a_terminal("get", key))
        self.assertEqual(subprocess.run([os.path.join(BIN, "kvclient"), "get", key], env=self.environment, check=True,
                                        stdout=subprocess.PIPE).stdout, nasty)


class Files(Surroundings):
    def test_ctrl_c_says_what_a_load_has_stored_and_a_kill_leaves_no_part_of_a_dump(self):
        self.serve("--data-dir", self.path("data"), memory="512MiB")
        path = self.path("in.tsv", "".join(f"k{i}\t{'0' * 400}\n" for i in range(300_000)))
        load = subprocess.Popen([os.path.join(BIN, "kvclient"), "load", "--progress", path], env=self.environment,
                                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        wait_until(lambda: self.client("exists", "k0").returncode == 0, "the first record")
        load.send_signal(signal.SIGINT)
        error = load.communicate(timeout=LIMIT_S)[1]
        if load.returncode != 0:  # it may have been quicker
            self.assertEqual(load.returncode, 4, error)
            self.assertRegex(error, r"stopped after \d+ records were stored: interrupted")
        directory = self.path("dumps")
        os.mkdir(directory)
        dump = subprocess.Popen([os.path.join(BIN, "kvclient"), "dump", os.path.join(directory, "out")],
                                env=self.environment)

        def has_opened_it():
            with contextlib.suppress(FileNotFoundError):
                links = [os.readlink(f"/proc/{dump.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{dump.pid}/fd")]
                return any(link.startswith(directory) for link in links) or dump.poll() is not None
            return dump.poll() is not None
        wait_until(has_opened_it, "the dump")
        dump.kill()
        dump.wait(LIMIT_S)
        self.assertIn(os.listdir(directory), ([], ["out"]))

    def test_a_dump_is_for_its_owner_alone(self):
        self.serve("--data-dir", self.path("data"))
        self.client("put", "a", "b")
        before = os.umask(0)
        try:
            self.assertEqual(self.client("dump", self.path("dump")).returncode, 0)
        finally:
            os.umask(before)
        self.assertEqual(os.stat(self.path("dump")).st_mode & 0o777, 0o600)


class UsersAround(Surroundings):
    def setUp(self):
        super().setUp()
        self.users = self.path("users")
        self.secret = self.path("secret")
        self.user("add", "anna", "--role", "admin", "--secret-file", self.secret)

    def user(self, command, name, *more):
        done = self.client("user", command, name, "--users", self.users, *more, program="kvserver")
        self.assertEqual(done.returncode, 0, done.stderr)

    def as_anna(self, *arguments, secret=None, **settings):
        return self.client("--user", "anna", "--secret-file", secret or self.secret, *arguments, **settings)

    def read_again(self, server):
        count = self.log().count("the users were read again")
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log().count("the users were read again") > count, "the users")

    def test_a_secret_is_exchanged_while_clients_work(self):
        server = self.serve("--users", self.users)
        new = self.path("new")
        self.assertEqual(self.as_anna("put", "a", "b").returncode, 0)
        self.user("renew", "anna", "--secret-file", new)
        self.read_again(server)
        self.assertEqual(self.as_anna("get", "a").stdout, "b")
        self.assertEqual(self.as_anna("get", "a", secret=new).stdout, "b")
        self.user("retire", "anna")
        self.read_again(server)
        self.assertEqual(self.as_anna("get", "a", secret=new).stdout, "b")
        done = self.as_anna("get", "a")
        self.assertEqual(done.returncode, 3)
        self.assertIn("the secret is wrong", done.stderr)
        self.stops(server)

    def test_a_health_check_needs_no_user(self):
        server = self.serve("--users", self.users)
        self.assertEqual(self.client("ping").returncode, 3)
        self.assertEqual(self.client("ping", "--alive").returncode, 0)
        self.assertEqual(self.as_anna("ping", "--alive").returncode, 0)
        self.stops(server)
        self.assertEqual(self.client("--timeout", "500ms", "ping", "--alive").returncode, 3)

    def test_a_proxy_is_named_and_may_be_advertised(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        proxy = f"127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=self.forward, args=(listener,), daemon=True).start()
        server = self.serve("--users", self.users, transport="tcp")
        through = ("--transport", "tcp", "--server", proxy, "put", "a", "b")
        done = self.as_anna(*through)
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"or the client called another address than {self.address()}", done.stderr)
        self.assertIn(f"(this client called {proxy})", done.stderr)
        self.assertIn(f"another address than {self.address()}", self.log())
        self.stops(server)
        server = self.serve("--users", self.users, "--advertise", f"192.0.2.1:1,{proxy}", transport="tcp")
        done = self.as_anna(*through)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.as_anna("--transport", "tcp", "get", "a").stdout, "b")
        self.stops(server)

    def forward(self, listener):
        def pump(source, target):
            with contextlib.suppress(OSError):
                while piece := source.recv(65536):
                    target.sendall(piece)
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            self.addCleanup(client.close)
            self.addCleanup(server.close)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    @unittest.skipUnless(IS_ROOT, "only root can become others")
    def test_secrets_as_they_are_mounted(self):
        """Of root, and readable by the group that the process has (Kubernetes' fsGroup)."""
        for path in (self.users, self.secret):
            os.chown(path, 0, GROUP)
            os.chmod(path, 0o440)
        other = {"user": VICTIM, "group": VICTIM, "extra_groups": [GROUP]}
        os.chown(self.sockets, VICTIM, VICTIM)
        server = self.serve("--users", self.users, **other)
        done = self.as_anna("put", "a", "b", **other)
        self.assertEqual(done.returncode, 0, done.stderr)
        os.chmod(self.secret, 0o444)
        done = self.as_anna("get", "a", **other)
        self.assertEqual(done.returncode, 2)
        self.assertIn("users other than its owner have access", done.stderr)
        self.stops(server)


@unittest.skipUnless(IS_ROOT, "only root can become others")
class Squatters(Surroundings):
    def setUp(self):
        super().setUp()
        self.squatted = f"/tmp/rkv-{VICTIM}"
        os.mkdir(self.squatted, 0o755)  # fails if somebody uses it
        self.addCleanup(shutil.rmtree, self.squatted)
        os.chown(self.squatted, ATTACKER, ATTACKER)
        self.environment.pop("RKV_SHM_DIR")
        self.environment.pop("KVCLIENT_TRANSPORT")

    def as_victim(self, *arguments):
        return self.client(*arguments, user=VICTIM, group=VICTIM, extra_groups=[])

    def attack(self):
        self.serve("--shm-group", str(VICTIM), log="of_attacker", user=ATTACKER, group=ATTACKER,
                   extra_groups=[VICTIM], env=dict(self.environment, RKV_SHM_DIR=self.squatted))

    def test_a_client_that_names_no_directory_reaches_the_real_server(self):
        self.serve("--no-auth", transport="tcp")
        self.attack()
        self.client("--transport", "tcp", "put", "who", "real")
        self.assertEqual(self.as_victim("put", "secret", "s3cr3t").returncode, 0)
        self.assertEqual(self.as_victim("get", "who").stdout, "real")
        self.assertEqual(self.client("--transport", "tcp", "get", "secret").stdout, "s3cr3t")
        self.assertNotIn("connected", self.log("of_attacker"))

    def test_without_a_real_server_it_is_told(self):
        self.attack()
        done = self.as_victim("put", "secret", "s3cr3t")
        self.assertEqual(done.returncode, 3)
        self.assertIn("belongs to another user", done.stderr)
        self.assertNotIn("connected", self.log("of_attacker"))
        done = self.as_victim("--transport", "shm", "doctor")
        self.assertIn(f"shared_memory {self.squatted}: it belongs to another user (number {ATTACKER})", done.stdout)


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
