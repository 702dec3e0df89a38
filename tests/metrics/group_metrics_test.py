#!/usr/bin/env python3
"""What the replicas of a group show, against the programs and a real etcd: group_metrics_test.py BIN
[unittest's arguments]. Over shared memory, so anywhere."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from kv import LIMIT_S, Server, parse_metrics, wait_until
from replicas import Group, Replica

BIN = ""
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
MONITOR = os.path.join(ROOT, "server/monitor/dashboard")


def value(replica, name, **labels):
    text = "".join(f',{label}="{of}"' for label, of in labels.items())
    return replica.metrics().get(f'kvserver_group_{name}{{group="g1"{text}}}')


def doctor(servers):
    """Its exit status, and its findings."""
    ended = subprocess.run([os.path.join(BIN, "kvclient"), "--transport", "shm", "--server", servers,
                            "--output", "json", "doctor"], capture_output=True, text=True,
                           timeout=LIMIT_S, check=False)
    return ended.returncode, json.loads(ended.stdout)


def expressions_of_dashboard():
    with open(os.path.join(MONITOR, "kvserver.json"), encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def expressions_of_alerts():
    with open(os.path.join(MONITOR, "alerts.yml"), encoding="utf-8") as file:
        text = file.read()
    return re.findall(r"expr: (?:>-\s+)?(.*?)\n\s+(?:for|labels):", text, re.S)


class Whole(unittest.TestCase):
    """A group that nothing happens to."""

    @classmethod
    def setUpClass(cls):
        cls.group = Group(BIN, 3).__enter__()
        cls.primary, cls.backup, cls.last = cls.group.replicas
        cls.primary.client("put", "greeting", "hello", "--durability", "sync")

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()

    def test_the_primary_knows_all(self):
        text = self.primary.ready()[1]
        self.assertIn("ready\nprimary of group g1 in term ", text)
        self.assertIn("3 of 3 replicas in sync\n", text)
        self.assertEqual(value(self.primary, "role", role="primary"), 1)
        self.assertEqual(value(self.primary, "serving"), 1)
        self.assertEqual(value(self.primary, "members_in_sync"), 3)
        self.assertEqual(value(self.primary, "connections"), 2)
        self.assertEqual(value(self.primary, "etcd_silent_seconds"), 0)
        self.assertTrue(0 < value(self.primary, "lease_seconds") <= 1)
        for member in ("n2", "n3"):
            self.assertEqual(value(self.primary, "member_in_sync", member=member), 1)
            self.assertEqual(value(self.primary, "member_connected", member=member), 1)
            wait_until(lambda member=member: value(self.primary, "member_lag_bytes", member=member) == 0,
                       "it to have all")
        group = json.loads(self.primary.client("stats", "--output", "json"))["server"]["group"]
        self.assertEqual((group["role"], group["replica"], group["primary_address"]),
                         ("primary", "n1", self.primary.address))
        self.assertEqual([member["name"] for member in group["members"]], ["n1", "n2", "n3"])

    def test_a_backup_shows_itself(self):
        self.assertEqual(self.backup.ready(),
                         (200, f"backup in sync; the primary is n1 ({self.primary.address})\n"))
        self.assertEqual(self.backup.get("/healthz")[::2], (200, "ok\n"))
        self.assertEqual(value(self.backup, "role", role="backup"), 1)
        self.assertEqual(value(self.backup, "serving"), 0)
        self.assertEqual(value(self.backup, "in_sync"), 1)
        self.assertIsNone(value(self.backup, "lease_seconds"))
        self.assertEqual(self.backup.metrics()['kvserver_disk_state{state="ok"}'], 1)
        group = self.backup.group()
        self.assertEqual((group["role"], group["connected"], group["primary"]), ("backup", True, "n1"))
        last = value(self.primary, "version", mark="last")
        for mark in ("last", "replicated", "sync"):
            wait_until(lambda mark=mark: value(self.backup, "version", mark=mark) == last, mark)

    def test_names_of_dashboard_and_alarms_exist(self):
        with Server(BIN) as alone:
            text = alone.get("/metrics")[2]
        text += self.primary.get("/metrics")[2] + self.backup.get("/metrics")[2]
        families = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
        labels = {f"{name}={of}" for name, of in re.findall(r'(\w+)="([^"]*)"', text)}
        alarms = expressions_of_alerts()
        self.assertEqual(len(alarms), 7)
        for expression in expressions_of_dashboard() + alarms:
            used = re.findall(r"\b(?:kvserver|process)_\w+", expression)
            self.assertTrue(used, expression)
            for name in used:
                self.assertTrue({name, re.sub(r"_(bucket|sum|count)$", "", name)} & families, name)
            for name, of in re.findall(r'(\w+)="([\w-]+)"', expression):
                self.assertIn(f"{name}={of}", labels, expression)
            for names in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
                for name in names.split(", "):
                    self.assertTrue(name in ("instance", "le") or f'{name}="' in text, expression)

    def test_the_doctor_says_who_is_the_primary(self):
        servers = ",".join(replica.address for replica in self.group.replicas)
        status, findings = doctor(servers)
        self.assertEqual(status, 0, findings)
        self.assertEqual([one["status"] for one in findings if one["check"] in ("server", "group")],
                         ["ok"] * 4)
        told = {one["subject"]: one["found"] for one in findings}
        self.assertIn("it directs clients to the primary, n1", told[self.backup.address])
        self.assertIn("3 of 3 replicas in sync", told["g1"])

    def test_promtool_accepts_what_replicas_show(self):
        for replica in (self.primary, self.backup):
            text = replica.get("/metrics")[2]
            self.assertTrue(parse_metrics(text))
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                     capture_output=True, timeout=LIMIT_S, check=False)
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))


class Trouble(unittest.TestCase):
    def test_a_backup_that_dies_is_named_until_it_is_back(self):
        with Group(BIN, 2) as group:
            primary, backup = group.replicas
            backup.kill()
            wait_until(lambda: value(primary, "members_in_sync") == 1, "it to be left out")
            wait_until(lambda: f"n2 ({backup.address}) is not in sync: not connected\nonly one copy of the data\n"
                       in primary.ready()[1], "the worries")
            self.assertEqual(primary.ready()[0], 200)
            self.assertEqual(value(primary, "member_in_sync", member="n2"), 0)
            self.assertEqual(value(primary, "member_connected", member="n2"), 0)
            self.assertTrue(1 < value(primary, "lease_seconds") < 15, "alone, etcd gives it")
            status, findings = doctor(f"{primary.address},{backup.address}")
            self.assertEqual(status, 3, "a named server was not reached")
            warned = [one["subject"] for one in findings if one["status"] == "warning"]
            self.assertEqual(warned[-2:], [f"n2 ({backup.address})", "g1"])
            backup.start()
            wait_until(lambda: value(primary, "member_in_sync", member="n2") == 1, "it to be back")
            wait_until(lambda: backup.ready()[0] == 200, "it to know")

    def test_who_takes_over_says_so(self):
        with Group(BIN, 2) as group:
            primary, backup = group.replicas
            before = value(backup, "term")
            self.assertEqual(value(backup, "terms_total"), 0)
            primary.kill()
            wait_until(lambda: backup.ready()[1].startswith("ready\nprimary of group"), "it to serve")
            self.assertEqual(value(backup, "role", role="primary"), 1)
            self.assertGreater(value(backup, "term"), before)
            self.assertEqual(value(backup, "terms_total"), 1)
            primary.start()
            wait_until(lambda: primary.ready()[1] ==
                       f"backup in sync; the primary is n2 ({backup.address})\n", "the other to follow")

    def test_etcd_that_is_silent_is_shown_and_keeps_nobody_from_being_ready(self):
        with Group(BIN, 2) as group:
            group.etcd.stop()
            for replica in group.replicas:
                wait_until(lambda replica=replica: value(replica, "etcd_silent_seconds") > 1, "the silence")
                status, _, text = replica.get("/readyz")
                self.assertEqual(status, 200)
                self.assertRegex(text, r"etcd has not answered for \d+ s: no replica can be replaced\n")
                wait_until(lambda replica=replica: '"etcd_silent"' in replica.log() or
                           "etcd does not answer" in replica.log(), "the line in the log")
            primary, backup = group.replicas
            backup.kill()  # and cannot be left out
            wait_until(lambda: primary.ready()[0] == 503, "the lease to end")
            self.assertIn("but it has no lease: replicas in sync do not answer, and without etcd they "
                          "cannot be left out\n", primary.ready()[1])
            self.assertEqual(value(primary, "serving"), 0)
            group.etcd.start()
            wait_until(lambda: primary.ready()[0] == 200, "it to serve again")
            wait_until(lambda: value(primary, "etcd_silent_seconds") == 0, "etcd to be well")

    def test_etcd_that_has_lost_its_data_is_shown_until_it_is_put_back(self):
        with Group(BIN, 2) as group:
            primary, backup = group.replicas
            kept = primary.group()["configuration_text"]
            group.etcd.lose_data()
            for replica in group.replicas:
                wait_until(lambda replica=replica: "etcd has lost the group's configuration" in
                           replica.ready()[1], "the loss")
                self.assertGreater(value(replica, "etcd_silent_seconds"), 0)
            group.etcd.control("put", "rkv/groups/g1/configuration", kept)
            for replica in group.replicas:
                self.assertEqual(replica.stop(), 0)
            for replica in group.replicas:
                replica.start()
            wait_until(lambda: all(replica.ready()[0] == 200 for replica in group.replicas), "all to be back")
            self.assertEqual(value(primary, "etcd_silent_seconds"), 0)

    def test_a_replica_without_etcd_says_what_it_waits_for(self):
        with Group(BIN, 1) as group:
            group.etcd.stop()
            late = Replica(BIN, group.etcd, "n9")
            try:
                late.start()
                wait_until(lambda: late.ready()[1].startswith(
                    "backup not in sync: etcd has not answered since the start\n"), "it to say so")
                self.assertEqual(late.ready()[0], 503)
                self.assertEqual(late.get("/healthz")[0], 200)
                self.assertEqual(value(late, "role", role="starting"), 1)
            finally:
                late.__exit__()

    def test_a_copy_is_counted(self):
        with Group(BIN, 1) as group:
            primary = group.replicas[0]
            primary.client("put", "a", "b")
            self.assertEqual(primary.stop(), 0)
            primary.start()  # its log does not reach back any more
            wait_until(lambda: primary.ready()[0] == 200, "it to serve")
            primary.client("put", "c", "d")
            joiner = Replica(BIN, group.etcd, "n2")
            try:
                joiner.start()
                wait_until(lambda: value(primary, "copies_sent_total") == 1, "the copy")
                wait_until(lambda: joiner.ready()[0] == 200, "it to be in sync")
            finally:
                joiner.__exit__()


class Alarms(unittest.TestCase):
    def test_promtool_accepts_and_raises_them(self):
        rules = os.path.abspath(os.path.join(MONITOR, "alerts.yml"))
        with tempfile.TemporaryDirectory() as scratch, \
                open(os.path.join(ROOT, "tests/metrics/alerts_test.yml"), encoding="utf-8") as made:
            test = os.path.join(scratch, "test.yml")
            with open(test, "w", encoding="utf-8") as file:
                file.write(made.read().replace("[RULES]", f"[{rules}]"))
            for command in (["check", "rules", rules], ["test", "rules", test]):
                done = subprocess.run([shutil.which("promtool"), *command], capture_output=True, text=True,
                                      timeout=LIMIT_S, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_has_a_test(self):
        with open(os.path.join(MONITOR, "alerts.yml"), encoding="utf-8") as file:
            names = re.findall(r"- alert: (\w+)", file.read())
        with open(os.path.join(ROOT, "tests/metrics/alerts_test.yml"), encoding="utf-8") as file:
            tests = file.read()
        for name in names:
            self.assertRegex(tests, rf"alertname: {name}\s+exp_alerts:")


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
