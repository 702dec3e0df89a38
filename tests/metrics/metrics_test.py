#!/usr/bin/env python3
"""What kvserver shows of itself and logs, against the program: metrics_test.py BIN [unittest's
arguments]. Over shared memory, so anywhere."""
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from kv import LIMIT_S, Server, parse_metrics, wait_until

BIN = ""
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def requests(metrics, operation, status="ok"):
    return metrics.get(f'kvserver_requests_total{{operation="{operation}",status="{status}"}}', 0)


def total(metrics, name):
    return sum(value for key, value in metrics.items() if key.split("{")[0] == name)


class Metrics(unittest.TestCase):
    def test_counters_add_up_with_what_a_client_did(self):
        with Server(BIN) as server:
            before = server.metrics()
            for i in range(7):
                server.client("put", f"key{i}", "value")
            server.client("del", "key0")
            server.client("del", "key0", status=None)  # not there any more
            for _ in range(3):
                server.client("incr", "number")
            server.client("put", "number", "text", status=None)  # a counter: refused
            server.client("put", "big", "-x", text="v" * 200_000)
            server.client("flush")
            server.client("ping")
            server.client("scan", "--prefix", "key")
            wait_until(lambda: total(server.metrics(), "kvserver_connections") == 0, "clients to go")
            after = server.metrics()

            def more(operation, status="ok"):
                return requests(after, operation, status) - requests(before, operation, status)

            self.assertEqual(more("put"), 7)
            self.assertEqual(more("put", "wrong_type"), 1)
            self.assertEqual(more("put_large"), 1)
            self.assertEqual(more("remove"), 1)
            self.assertEqual(more("remove", "not_found"), 1)
            self.assertEqual(more("add"), 3)
            self.assertEqual(more("flush"), 1)
            self.assertGreaterEqual(more("ping"), 1)
            self.assertEqual(more("scan"), 1)
            self.assertEqual(after["kvserver_memory_records"], 8)  # 6 keys, the counter, the large one
            self.assertEqual(after["kvserver_sync_sequence"], after["kvserver_last_sequence"])
            self.assertEqual(after["kvserver_sync_lag_seconds"], 0)
            self.check_sums(after)

    def check_sums(self, metrics):
        """What must hold at any time when no request is under way."""
        answered = total(metrics, "kvserver_requests_total")
        self.assertEqual(metrics["kvserver_requests_received_total"],
                         answered + metrics["kvserver_requests_abandoned_total"])
        self.assertEqual(total(metrics, "kvserver_requests_waiting"), 0)
        self.assertEqual(metrics["kvserver_connections_accepted_total"],
                         metrics["kvserver_connections_ended_total"] +
                         total(metrics, "kvserver_connections"))
        for name in list(metrics):
            match = re.fullmatch(r'kvserver_request_duration_seconds_count\{operation="(\w+)"\}', name)
            if not match:
                continue
            operation = match.group(1)
            answers = sum(value for key, value in metrics.items() if key.startswith(
                f'kvserver_requests_total{{operation="{operation}",'))
            self.assertEqual(metrics[name], answers, operation)
            buckets = [value for key, value in metrics.items() if key.startswith(
                f'kvserver_request_duration_seconds_bucket{{operation="{operation}",')]
            self.assertEqual(buckets, sorted(buckets), operation)
            self.assertEqual(buckets[-1], metrics[name], operation)

    def test_promtool_accepts_a_scrape_after_load(self):
        with Server(BIN, "--memory", "64MiB") as server:
            load = server.bench("-load", "-p", "recordcount=20000", "-threads", "2")
            seen = []
            while load.poll() is None:
                seen.append(requests(server.metrics(), "put"))
            self.assertEqual(load.returncode, 0)
            self.assertEqual(seen, sorted(seen), "a counter went back")
            status, headers, text = server.get("/metrics")
            self.assertEqual((status, headers["Content-Type"]),
                             (200, "text/plain; version=0.0.4; charset=utf-8"))
            metrics = parse_metrics(text)
            self.assertEqual(requests(metrics, "put"), 20000)
            self.assertGreater(metrics['kvserver_request_duration_seconds_sum{operation="put"}'], 0)
            wait_until(lambda: total(server.metrics(), "kvserver_connections") == 0, "clients to go")
            self.check_sums(server.metrics())
            self.assertTrue(all(name.startswith(("kvserver_", "process_")) for name in metrics))
            self.assertLess(len(metrics), 1000, "labels are bounded")
            promtool = shutil.which("promtool")
            self.assertIsNotNone(promtool, "Debian's package prometheus has it")
            checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                                     capture_output=True, timeout=LIMIT_S, check=False)
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))

    def test_status_health_and_other_paths(self):
        with Server(BIN, disk=False) as server:
            server.client("put", "a", "b")
            status = server.status()
            self.assertEqual((status["state"], status["puts"], status["disk_state"]),
                             ("ready", 1, "none"))
            self.assertEqual(status["operations"]["put"]["answers"], {"ok": 1})
            self.assertEqual(len(status["workers"]), 2)
            stats = json.loads(server.client("stats", "--output", "json"))
            self.assertLessEqual(set(stats["server"]), set(status), "what kvclient stats shows is there as well")
            self.assertEqual(server.get("/healthz")[::2], (200, "ok\n"))
            self.assertEqual(server.get("/readyz")[::2], (200, "ready\ndisk: none\n"))
            self.assertEqual(server.get("/nothing")[0], 404)
            self.assertEqual(server.get("/status", "POST")[0], 405)
            self.assertEqual(server.get("/metrics", "DELETE")[0], 405)
            page = server.get("/")
            self.assertEqual(page[1]["Content-Type"], "text/html; charset=utf-8")
            with open(os.path.join(ROOT, "server/monitor/page/status.html"), encoding="utf-8") as file:
                self.assertEqual(page[2].strip(), file.read().strip())
            self.assertEqual(server.stop(), 0)

    def test_many_who_look_disturb_nobody(self):
        with Server(BIN, "--memory", "64MiB") as server:
            failed = []

            def look():
                for path in ("/metrics", "/status", "/healthz", "/readyz", "/") * 10:
                    if server.get(path)[0] != 200:
                        failed.append(path)

            lookers = [threading.Thread(target=look) for _ in range(8)]
            load = server.bench("-load", "-p", "recordcount=20000")
            for looker in lookers:
                looker.start()
            for looker in lookers:
                looker.join()
            self.assertEqual(failed, [])
            self.assertEqual(load.wait(LIMIT_S), 0)
            self.assertEqual(requests(server.metrics(), "put"), 20000)

    def test_clients_that_are_not_let_in_are_counted(self):
        with Server(BIN, "--max-clients", "1") as server:
            command = [os.path.join(BIN, "kvclient"), "--transport", "shm", "--server", server.address]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, text=True) as stays:
                stays.stdin.write("ping\n")
                stays.stdin.flush()
                wait_until(lambda: total(server.metrics(), "kvserver_connections") == 1, "a client")
                server.client("--timeout", "100ms", "ping", status=None)
                refused = wait_until(lambda: server.metrics()[
                    'kvserver_connections_refused_total{reason="full"}'], "a refusal")
                self.assertGreaterEqual(server.status()["connections_refused"], refused)
                stays.stdin.close()
            self.assertEqual(total(server.metrics(), "kvserver_connections_dropped_total"), 0)

    def test_the_status_says_who_may_connect(self):
        for arguments, said in (
                ([], "only this host may connect: others need --users, or --no-auth"),
                (["--no-auth"], "every host that reaches the server may read and write, as --no-auth says")):
            with Server(BIN, *arguments, disk=False) as server:
                self.assertEqual(server.status()["access"], said)

    def test_a_server_that_stops_says_so(self):
        with Server(BIN) as server:
            # Connections that say nothing keep nobody from stopping.
            silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
            self.assertEqual(server.stop(), 0)
            for one in silent:
                one.close()


class Endpoint(unittest.TestCase):
    def test_off_unless_asked_for(self):
        with Server(BIN, metrics=None) as server:
            self.assertIsNone(server.port)
            listening = [line for line in listening_sockets() if line[1] == server.process.pid]
            self.assertEqual(listening, [])

    def test_a_port_alone_is_for_this_host_alone(self):
        with Server(BIN) as server:
            addresses = [address for address, pid in listening_sockets() if pid == server.process.pid]
            self.assertEqual(addresses, [f"127.0.0.1:{server.port}"])

    def run_and_fail(self, *arguments, **environment):
        ended = subprocess.run([os.path.join(BIN, "kvserver"), "--transport", "shm", "--listen",
                                "127.0.0.1:0", *arguments], capture_output=True, text=True,
                               timeout=LIMIT_S, env=dict(os.environ, **environment), check=False)
        last = ended.stderr.strip().splitlines()[-1]
        return ended.returncode, last

    def test_bad_addresses_are_told_in_a_sentence(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            status, sentence = self.run_and_fail("--metrics", port)
            self.assertEqual(status, 3)
            self.assertIn(f"cannot use --metrics 127.0.0.1:{port}: ", sentence)
            self.assertIn("the port is in use", sentence)
        status, sentence = self.run_and_fail("--metrics", "192.0.2.77:9471")
        self.assertEqual(status, 3)
        self.assertIn("this host does not have the address", sentence)
        for wrong in ("", "port", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "1.2.3.4:-1"):
            status, sentence = self.run_and_fail("--metrics", wrong)
            self.assertEqual((status, sentence), (
                2, "kvserver: --metrics must be PORT or HOST:PORT, such as 9471 (for this host alone) "
                f'or 0.0.0.0:9471, not "{wrong}"'))
        status, sentence = self.run_and_fail(KVSERVER_LOG_FORMAT="xml")
        self.assertEqual((status, sentence),
                         (2, 'kvserver: KVSERVER_LOG_FORMAT must be text or json, not "xml"'))


class Logs(unittest.TestCase):
    def test_every_line_is_an_object(self):
        with Server(BIN, "--log-format", "json", "--log-level", "debug") as server:
            server.client("put", "a", "b")
            wait_until(lambda: '"client_gone"' in server.log(), "the client to go")
            server.client("backup", "x", status=None)
            self.assertEqual(server.stop(), 0)
            lines = [json.loads(line) for line in server.log().splitlines()]
        events = {line["event"]: line for line in lines}
        for name in ("metrics_listening", "ready", "client_connected", "client_gone", "stopping",
                     "stopped"):
            self.assertIn(name, events)
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("debug", "info", "warning", "error"))
            self.assertTrue(line["event"] and line["message"])
        self.assertEqual(events["client_connected"]["name"], "kvclient")
        self.assertEqual(events["metrics_listening"]["port"], server.port)

    def test_the_level_is_read_again_on_sighup(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "kvserver.toml")

            def write(text):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)

            write('log-level = "info"\n')
            with Server(BIN, disk=False, environment={"KVSERVER_CONFIG": path}) as server:
                def read_again(sentence):
                    before = server.log().count(sentence)
                    server.process.send_signal(signal.SIGHUP)
                    wait_until(lambda: server.log().count(sentence) > before, sentence)

                def lines_of_a_client():
                    before = server.log().count("connected, session")
                    ended = server.metrics()["kvserver_connections_ended_total"]
                    server.client("ping")
                    wait_until(lambda: server.metrics()["kvserver_connections_ended_total"] > ended,
                               "the client to go")
                    return server.log().count("connected, session") - before

                self.assertEqual(lines_of_a_client(), 1)
                write('log-level = "warn"\n')
                read_again("the log level is warn")
                self.assertEqual(lines_of_a_client(), 0)
                write('log-level = "loud"\n')
                read_again('must be debug, info, warn or error, not "loud"')
                self.assertEqual(lines_of_a_client(), 0, "nothing has changed")
                write('log-level = "info"\n')
                read_again("the log level is info")
                self.assertEqual(lines_of_a_client(), 1)
                self.assertEqual(server.stop(), 0)

    def test_a_flood_is_counted_and_told(self):
        """As many clients as it takes: a flood is so many in a while, and how many come in it depends
        on the machine."""
        shown = re.compile(r"info: client \S+ \"[^\"]+\" connected")
        with Server(BIN, "--max-clients", "256", "--memory", "64MiB", disk=False) as server:
            def clients_so_far():
                load = server.bench("-load", "-p", "recordcount=120", "-threads", "120")
                self.assertEqual(load.wait(LIMIT_S), 0)
                metrics = wait_until(lambda: (now := server.metrics())[
                    "kvserver_connections_ended_total"] == now["kvserver_connections_accepted_total"] and now,
                    "all to go")
                return int(metrics["kvserver_connections_accepted_total"])

            clients = wait_until(lambda: (now := clients_so_far()) > len(shown.findall(server.log())) and now,
                                 "a flood")
            self.assertEqual(server.stop(), 0)
            log = server.log()
        left_out = sum(map(int, re.findall(r"warning: (\d+) more lines of client_connected were omitted",
                                           log)))
        self.assertGreater(left_out, 0)
        self.assertEqual(len(shown.findall(log)) + left_out, clients)

    def test_a_thread_that_cannot_be_started_is_an_event_too(self):
        """Its stack is to be larger than all addresses there are."""
        def too_much():
            resource.setrlimit(resource.RLIMIT_STACK, (1 << 47, resource.getrlimit(resource.RLIMIT_STACK)[1]))

        ended = subprocess.run([os.path.join(BIN, "kvserver"), "--transport", "shm", "--listen", "127.0.0.1:0",
                                "--metrics", "0", "--log-format", "json"], capture_output=True, text=True, timeout=LIMIT_S,
                               preexec_fn=too_much, check=False)
        lines = [json.loads(line) for line in ended.stderr.splitlines()]
        self.assertEqual((ended.returncode, lines[-1]["event"], lines[-1]["level"]), (3, "failed", "error"))


def listening_sockets():
    """(address, pid) of all TCP sockets that listen, of IPv4."""
    inodes = {}
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            if fields[3] != "0A":
                continue
            host, port = fields[1].split(":")
            octets = ".".join(str(byte) for byte in reversed(bytes.fromhex(host)))
            inodes[fields[9]] = f"{octets}:{int(port, 16)}"
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
                if link.startswith("socket:[") and link[8:-1] in inodes:
                    found.append((inodes[link[8:-1]], int(pid)))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
