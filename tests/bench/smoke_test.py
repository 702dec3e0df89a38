#!/usr/bin/env python3
"""Every benchmark runs, tiny, over shared memory, and what it counts adds up. No time is judged.

    tests/bench/smoke_test.py BIN [unittest's arguments]     BIN: where the programs are
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench")
sys.path.insert(0, BENCH)
import common  # noqa: E402
import get_shm  # noqa: E402
import group  # noqa: E402
import growth  # noqa: E402

COMPARE = os.path.join(BENCH, "compare", "compare.py")
ADDRESS = "127.0.0.1:7497"  # names shared memory's sockets, in a directory of this test's own


def bench(name, *arguments):
    """Runs bench/NAME.py once over; its --json, with the medians by name."""
    with tempfile.TemporaryDirectory(prefix="rkv-smoke-") as scratch:
        out = os.path.join(scratch, "out.json")
        done = subprocess.run(
            [sys.executable, os.path.join(BENCH, f"{name}.py"), "--transport", "shm", "--bin", BIN,
             "--address", ADDRESS, "--repetitions", "1", "--json", out, *arguments],
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise AssertionError(f"bench/{name}.py ended with {done.returncode}:\n{done.stdout}")
        with open(out, encoding="utf-8") as text:
            report = json.load(text)
    report["figure"] = {row["name"]: row["figure"] for row in report["figures"]}
    return report


def check_stream(test, report, total, size):
    """What bench_verbs_streams says of `total` bytes, written `size` at a time."""
    test.assertEqual((report["bytes_sent"], report["bytes_received"]), (total, total))
    test.assertGreaterEqual(report["writes"], total // size)
    test.assertGreaterEqual(report["reads"], total // size)  # at most `size` each
    test.assertGreater(report["seconds"], 0)


def compare(*arguments, status=0, **settings):
    """Measures and reports as `./run bench compare --quick --transport shm` does; the list that
    --json has, and all that was printed."""
    with tempfile.TemporaryDirectory(prefix="rkv-smoke-") as parts:
        flags = ["--quick", "--transport", "shm", "--parts", parts, *arguments]
        out = os.path.join(parts, "out.json")
        shown = ""
        for step in (["measure", "--over", "shm", "--bin", BIN, "--address", ADDRESS],
                     ["report", "--json", out]):
            done = subprocess.run([sys.executable, COMPARE, *step, *flags], check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  **settings)
            shown += done.stdout
        if done.returncode != status:
            raise AssertionError(f"compare.py ended with {done.returncode}:\n{shown}")
        with open(out, encoding="utf-8") as text:
            return json.load(text), shown


def options_of(**flags):
    """What a benchmark's measure() is given."""
    return types.SimpleNamespace(bin=BIN, address=ADDRESS, transport="shm", poll="adaptive",
                                 repetitions=1, **flags)


def micro(chosen):
    """What bench_micro tells of those that the filter chooses, each run for as short as it goes."""
    done = subprocess.run([os.path.join(BIN, "bench_micro"), f"--benchmark_filter={chosen}",
                           "--benchmark_min_time=0.0001", "--benchmark_format=json"],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout)["benchmarks"]


class Benchmarks(unittest.TestCase):
    def test_get(self):
        options = options_of(gets=300, records_mib=1)
        figures = common.Figures()
        get_shm.measure_size(options, 200, figures)
        one = figures.runs[0]
        self.assertEqual(one["warm"]["reads_per_get"], 1)
        self.assertEqual(one["cold"]["reads_per_get"], 2)
        self.assertEqual(one["cold"]["two_sided_gets"], 0)
        with common.kvserver(options, "64MiB"):
            common.program(options, "bench_get", "load", keys=500)
            many = common.program(options, "bench_get", "pipelined", keys=500, gets=700)
            self.assertEqual(many["reads_per_get"], 1)
            rate = common.program(options, "bench_get", "threads", keys=500, gets=100, threads=2)
            self.assertGreater(rate["gets_per_s"], 0)

    def test_instructions(self):
        """A pipeline is for many operations: one by itself costs more there."""
        figure = bench("instructions")["figure"]
        get, put = "GET of a cached place, ", "PUT, "
        self.assertGreater(figure[get + "get_into()"], 100)
        self.assertGreater(figure[get + "multi_get_into() of one key"], figure[get + "get_into()"])
        self.assertGreater(figure[get + "get_into() of a Cluster of one server"], figure[get + "get_into()"])
        self.assertGreater(figure[put + "put()"], figure[get + "get_into()"])
        self.assertGreater(figure[put + "multi_put_each() of one item"], figure[put + "put()"])
        self.assertGreater(figure["the server of a key, of 3 servers"], 10)

    def test_growth(self):
        figures = common.Figures()
        growth.measure(options_of(gets=200, keys=200, most_keys=10_000, loads_memory="16MiB"),
                       figures)
        loads = [run for run in figures.runs if "load" in run]
        doubling = next(run for run in figures.runs if "doubling" in run)
        self.assertEqual([at["wanted"] for at in loads if at["wanted"] in growth.SHOWN_LOADS],
                         [0.5, 0.75, 0.9])
        for at in loads:
            self.assertGreaterEqual(at["load"], at["wanted"])
            # A GET that asks the server may do so after a single READ.
            self.assertGreaterEqual(at["cold"]["reads"] + at["cold"]["asked"], 2)
            self.assertGreaterEqual(at["warm"]["reads"] + at["warm"]["asked"], 1)
        self.assertEqual(doubling["doubling"]["failed"], 0)

    def test_counters(self):
        # The program looks itself whether the counter shows what was added.
        report = bench("counters", "--additions", "100", "--depth", "4")
        self.assertGreater(report["figure"]["atomics/s, pipelined"], 0)
        self.assertEqual(report["figure"]["additions a request, in packs"], 100 / 4)  # 32 in each

    def test_expiry(self):
        report = bench("expiry", "--keys", "2000", "--rate", "1000", "--seconds", "1")
        filled, one = (report["runs"][n] for n in range(2))
        self.assertEqual(filled["fill"]["expiring"], 2000)
        for phase in "alone", "plain", "refreshed":
            self.assertGreater(one[phase]["short_lived"], 0, phase)
        self.assertLess(one["plain"]["expiring"], one["refreshed"]["expiring"])

    def test_larger(self):
        report = bench("larger", "--keys", "2000", "--operations", "2000")
        filled, mix, restart = (report["runs"][n] for n in range(3))
        self.assertEqual(filled["fill"]["records"] + filled["fill"]["records_on_disk"], 2000)
        self.assertEqual(mix["mix"]["hit_rate"], 1)  # all of it is in memory
        self.assertEqual(restart["restart"]["records"] + restart["restart"]["records_on_disk"], 2000)

    def test_verbs(self):
        """Instructions, and streams over memory: the rest wants a device."""
        report = bench("verbs", "--rounds", "20", "--stream-mib", "1", "--stream-bytes", "1000,65536")
        done = report["runs"][0]["counted"]
        requests = 40 * (1 + done["many"])
        for how in "plain", "wrapped":
            self.assertEqual(done[how], {
                "requests": requests, "pieces": requests, "doorbells": 80,
                "completions": 2 * requests,  # each is numbered; 64 bytes are written in place
                "sum": requests * (2 * requests - 1) + requests * 64}, how)
        for what in "a post, {} a doorbell", "a poll, {} a poll", "a poll in place, {} a poll":
            kind = f"instructions {what.format(done['many'])}"
            self.assertEqual(report["figure"][f"{kind}: more"],
                             report["figure"][f"{kind}: library"] - report["figure"][f"{kind}: C"])
            self.assertGreater(report["figure"][f"{kind}: C"], 10)
        for size, run in zip((1000, 65536), report["runs"][1:], strict=True):
            total = 2**20 // size * size
            for phase in "memory", "tcp":
                check_stream(self, run["streams"][phase], total, size)
            self.assertGreater(report["figure"][f"stream, memory, {size} bytes / TCP"], 0)

    def test_invalid_options_are_refused_before_anything_is_measured(self):
        """In one sentence, by the script and by the programs."""
        for wrong in (["--rounds", "0"], ["--rounds", "x"], ["--iterations", "4"], ["--bytes", "0"],
                      ["--bytes", "1073741825"], ["--repetitions", "0"], ["--stream-depth", "129"],
                      ["--stream-depth", "-1"], ["--stream-mib", "0"], ["--json", "/none/there.json"],
                      ["--poll", "lazy"], ["--transport", "tin"], ["stray"], ["--bytes"]):
            with self.subTest(wrong):
                self.expect_misuse(sys.executable, os.path.join(BENCH, "verbs.py"), "--bin", BIN,
                                   "--transport", "shm", *wrong)
        for name, *wrong in (
                ("bench_verbs", "--phase", "send", "--bytes", "1073741825"),
                ("bench_verbs", "--phase", "sent"), ("bench_verbs", "--phase", "send", "--bytes", "-1"),
                ("bench_verbs_overhead", "--phase", "loops", "--bytes", "4294967297"),
                ("bench_verbs_overhead", "--phase", "loops", "--rounds", "0"),
                ("bench_verbs_streams", "--phase", "tcp", "--depth", "129"),
                ("bench_verbs_streams", "--phase", "memory", "--bytes", "1048577"),
                ("bench_verbs_streams", "--phase", "raw", "--bytes", "1000", "--total", "1001"),
                ("bench_verbs_streams", "--phase", "tcp", "stray")):
            with self.subTest(name, wrong=wrong):
                self.expect_misuse(os.path.join(BIN, name), *wrong)

    def expect_misuse(self, *command):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertRegex(done.stderr, r"\A[^\n]+\n\Z")

    def test_verbs_wants_sizes_that_fit(self):
        for wrong in "", "1024,many", "0", "2097152":
            with self.assertRaisesRegex(AssertionError, "ended with 2:\n.*--stream-bytes is numbers"):
                bench("verbs", "--stream-mib", "1", "--stream-bytes", wrong)

    def test_durability(self):
        report = bench("durability", "--records", "2000", "--slices", "1", "--slice-ms", "20",
                     "--writers", "4", "--most-keys", "10000", "--anywhere", "1")
        runs = {run["what"]: run for run in report["runs"]}
        self.assertEqual(runs["background"]["server"]["records"], 1000)
        self.assertEqual(runs["background"]["server"]["coalesced"], 0)
        self.assertGreater(runs["put"]["slices"][0]["with"]["closed"]["puts"], 0)
        for one in (runs["sync"]["slices"][0], runs["sync_pipelined"]["slices"][0]):
            self.assertEqual(one["puts"], 200)
            self.assertLessEqual(one["groups"], one["puts"])
        self.assertEqual(runs["restart"]["server"]["records"], 10_000)
        self.assertEqual(runs["restart"]["rocksdb"]["records"], 10_000)
        self.assertEqual(runs["restart"]["server"]["value_bytes"], 100)

    def test_logs(self):
        report = bench("durability", "--steps", "log", "--slices", "1", "--slice-ms", "50", "--writers", "4",
                       "--anywhere", "1")
        self.assertEqual(len(report["runs"]), 6)
        for run in report["runs"]:
            self.assertGreater(run["groups"], 0, run)
            self.assertLessEqual(run["groups"], run["puts"], run)

    def test_durability_refuses_a_step_that_is_none(self):
        done = subprocess.run([sys.executable, os.path.join(BENCH, "durability.py"), "--steps",
                               "nothing"], check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("not nothing", done.stderr)

    def test_durability_refuses_a_directory_that_is_none(self):
        done = subprocess.run([sys.executable, os.path.join(BENCH, "durability.py"), "--scratch",
                               "/nowhere"], check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no such directory for the data: /nowhere", done.stderr)

    def test_durability_wants_a_disk(self):
        with self.assertRaisesRegex(AssertionError, "not on a disk: give --scratch"):
            bench("durability", "--scratch", "/dev/shm")

    def test_group(self):
        report = bench("group", "--puts", "100", "--gets", "2000", "--keys", "500", "--records",
                       "2000", "--fail-overs", "1", "--anywhere", "1")
        self.assertEqual([run["durability"] for run in report["runs"] if run["what"] == "put"],
                         list(group.LEVELS))
        for level in group.LEVELS:
            self.assertGreater(report["figure"][f"PUTs ({level})/s, 32 in flight, 2 backups"], 0)
        # What a server without a group READs, and its replicated mark in a group.
        self.assertEqual(report["figure"]["READs per warm GET, one at a time, alone"], 1)
        for words in "one at a time", "32 in flight":
            self.assertGreaterEqual(
                report["figure"][f"READs per warm GET, {words}, 2 backups / alone"], 1)
        for way in "stream", "copy":
            self.assertGreater(report["figure"][f"records/s, by {way}, values of 100 B"], 0)
        self.assertGreater(report["figure"]["the longest of them (s)"], 0)

    def test_group_refuses_what_makes_no_sense(self):
        for wrong, says in ((["--steps", "nothing"], "not nothing"),
                            (["--fail-overs", "0"], "at least 1"),
                            (["--replicate-over", "udp"], "not udp")):
            done = subprocess.run([sys.executable, os.path.join(BENCH, "group.py"), *wrong],
                                  check=False, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr)
        for wrong in (["--pid", "1"], ["--pid", "many"]):
            done = subprocess.run([os.path.join(BIN, "bench_group"), "--phase", "failover", *wrong],
                                  check=False, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)

    def test_kvbench_follows_a_group(self):
        """Also to the next primary: what was under way may fail, the rest does not."""
        options = options_of(scratch=None, anywhere=1, keys=200, replicate_over="auto")
        group.find_disk(options)
        with group.etcd(options) as endpoint, group.Group(options, endpoint, 3) as replicas:
            load = ["-load", "-P", os.path.join(group.WORKLOADS, "workloada")]
            loaded = group.kvbench(options, replicas.address, *load)
            self.assertEqual(loaded["overall"]["operations"], 200)
            command = [os.path.join(BIN, "kvbench"), "--server", replicas.address, "--transport",
                       "shm", "--timeout", "60s", "--output", "json", "-s", "-target", "200", "-p",
                       "recordcount=200", "-p", "operationcount=1000", "-p", "fieldcount=1", "-p",
                       "status.interval=1", *load[1:]]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as running:
                self.assertIn("operations", running.stderr.readline())  # it is under way
                primary = replicas.primary()
                replicas.kill(primary)
                shown, said = running.communicate(timeout=120)
            self.assertIn(running.returncode, (0, 1), said)
            report = json.loads(shown)
            self.assertTrue(report["complete"])
            self.assertEqual(report["overall"]["operations"], 1000)
            self.assertLessEqual(report["overall"]["failed"], 1)  # one is under way at a time
            self.assertNotEqual(replicas.primary(), primary)

    def test_compare(self):
        with tempfile.TemporaryDirectory(prefix="rkv-smoke-") as plots:
            lines, shown = compare("--only", "4,11,12,16,17,18,19", "--plots", plots)
            self.assertEqual(sorted(os.listdir(plots)),
                             ["percentiles_shm.svg", "reads_per_get_shm.svg"])
        figures = {line["name"]: line for line in lines}
        self.assertEqual({line["row"] for line in lines}, {4, 11, 12, 16, 17, 18, 19})
        self.assertGreaterEqual(figures["READs per GET, YCSB-B"]["figure"], 1)
        self.assertGreater(figures["READs per cold GET, index load 0.9"]["figure"], 1.9)
        self.assertEqual(figures["torn or older values returned"]["figure"], 0)
        self.assertEqual(figures["GETs that raced writers"]["figure"], 2000)
        self.assertGreater(figures["PUTs/s, 16 clients, 32 in flight each, / Redis"]["figure"], 0)
        # 16 bytes of key, 100 of value and what a record has besides, in whole units of 32.
        overhead = "memory of a record beyond key and value (B), values of 100 B"
        self.assertEqual((figures[overhead]["figure"] + 116) % 32, 0)
        for line in lines:
            self.assertEqual((line["why"], len(line["samples"])), ("", 1), shown)
            self.assertIsNone(line["holds"])  # nothing is judged by a run that is that small

    def test_compare_says_what_it_cannot_measure(self):
        with tempfile.TemporaryDirectory(prefix="rkv-smoke-") as programs:
            os.symlink(shutil.which("lscpu"), os.path.join(programs, "lscpu"))
            lines, shown = compare("--only", "11", status=4, env={**os.environ, "PATH": programs})
        self.assertIn("redis-server is not installed (./run install-deps)", shown)
        self.assertIn("memcached is not installed (./run install-deps)", shown)
        self.assertEqual([line["figure"] for line in lines], [None] * 6)

    def test_compare_refuses_what_makes_no_sense(self):
        for arguments, says in ((["--only", "4,99"], "there is no row 99"),
                                (["--only", "four"], "numbers of rows"),
                                (["--repetitions", "0"], "at least 1"),
                                (["--only", "10", "--transport", "verbs"], "none of these rows"),
                                (["--json", "/nowhere/out.json"], "no such directory: /nowhere")):
            done = subprocess.run([COMPARE, "plan", *arguments], check=False, capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(says, done.stderr)

    def test_micro(self):
        # The allocator's take long to fill memory: one of each.
        one_of_each = r"allocator_(insert/mix:1|replace/mix:2/percent_full:50)/.*threads:1$"
        ran = micro("-allocator") + micro(one_of_each)
        for run in ran:
            self.assertNotIn("error_occurred", run, run["name"])
            self.assertGreater(run["iterations"], 0, run["name"])
            if "hit:0" in run["name"]:
                self.assertEqual(run["hits"], 0, run["name"])
            if "hit:1" in run["name"]:
                self.assertGreater(run["hits"], 0.95, run["name"])
        names = {re.split("[/<]", run["name"])[0] for run in ran}
        with open(os.path.join(BENCH, "micro", "README.md"), encoding="utf-8") as text:
            claimed = [re.findall("`([a-z_]+)`", row.split("|")[1]) for row in text if row[0] == "|"]
        self.assertEqual(names, {name for row in claimed for name in row})

    def test_model(self):
        def predict(*arguments, status=0):
            with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
                done = subprocess.run(
                    [sys.executable, os.path.join(BENCH, "model", "model.py"), "--json", out.name,
                     *arguments], check=False, capture_output=True, text=True)
                self.assertEqual(done.returncode, status, done.stderr)
                return json.load(out) if status == 0 else done.stderr
        limits = {"--round-trip-us": "round trips", "--gbit-per-s": "servers' bandwidth",
                  "--messages-per-s": "servers' messages"}
        for flag, limit in limits.items():
            report = predict(flag, "1000000" if limit == "round trips" else "0.001",
                           "--in-flight", "32" if limit != "round trips" else "1")
            one = [row for row in report["predictions"] if row["servers"] == 1]
            self.assertEqual({row["limit"] for row in one}, {limit})
        report = predict("--gets-per-s", "1000000", "--round-trip-us", "1")
        first = report["predictions"][0]
        self.assertAlmostEqual(first["operations_per_s"], 1e6 / 2)  # 1 us there, 1 us here
        rates = [row["operations_per_s"] for row in report["predictions"] if row["servers"] == 1]
        self.assertEqual(rates, sorted(rates))
        for wrong in (["--put-share", "2"], ["--record-bytes", "0"], ["--costs", __file__]):
            self.assertIn("bench model: ", predict(*wrong, status=2))

    def test_a_benchmark_that_cannot_run_says_why(self):
        done = subprocess.run([os.path.join(BIN, "bench_get"), "--phase", "hot"], check=False,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--phase must be one of load, warm", done.stderr)
        done = subprocess.run([os.path.join(BIN, "bench_larger"), "--phase", "fill", "--transport",
                               "shm", "--server", "127.0.0.1:7498"], check=False,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)

    def test_a_full_disk_ends_the_queue(self):
        with tempfile.TemporaryDirectory(prefix="rkv-smoke-") as directory:
            # Files end early (without the signal that would say so); the queue is one as well.
            limit = f"trap '' XFSZ; ulimit -f 5000; exec '{os.path.join(BIN, 'bench_disk')}' \"$@\""
            done = subprocess.run(
                ["bash", "-c", limit, "bash", "--phase", "queue", "--keys", "300000",
                 "--queue-bytes", str(2 << 20), "--directory", directory],
                check=False, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("the server's disk is full", done.stderr)


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
