#!/usr/bin/env python3
"""All steps of `./run cluster --replicated` where scripts stand for docker and its containers
(stand_ins.py): who is killed when, what is compared, and what is said of what is missing. The real
ones are in cluster_test.sh."""

import json
import os
import sys
import threading
import unittest

sys.dont_write_bytecode = True

from stand_ins import FOLDER, DOCKER, Machine

sys.path.insert(0, FOLDER)

from beside import Writer, await_that
from machinery import group_of

REPLICAS = ("replica1", "replica2", "replica3")
# Containers are named after their services. Who is killed is not in sync, and replica3 takes over;
# who is started again is in sync.
GROUP_DOCKER = """
for last; do :; done
case "$1 $2" in
  "ps "*) if [ $# -gt 4 ]; then echo "${last##*=}"; exit; fi ;;
  "exec "*) cat configuration; exit ;;
  "kill --signal")
    case $3 in
      INT) kill -INT "$(cat benchmark)" ;;
      KILL) echo "exited unhealthy 137" >state-$4; [ -e nobody ] || cat without-$4 >configuration ;;
    esac
    exit ;;
  "start "*) echo "running healthy 0" >state-$2; cat again >configuration; exit ;;
  "inspect --format")
    shift 3
    for one; do if [ -e state-$one ]; then cat state-$one; else cat state; fi; done
    exit ;;
esac
""" + DOCKER
# The containers of the clients. Of each kind of records all are there, but for what the file
# missing-KIND says.
GROUP_COMPOSE = """
echo >up
service=$0
while [ $# != 0 ]; do
  case $1 in group-*) service=$1; shift; break ;; esac
  shift
done
missing() { if [ -e missing-$1 ]; then cat missing-$1; else echo 0; fi; }
case "$service $*" in
  "group-loader --output json verify -")
    n=0; kind=loaded
    while read -r line; do n=$((n + 1)); case $line in writer-*) kind=writer ;; esac; done
    echo "{\\"records\\": $n, \\"missing\\": $(missing $kind), \\"mismatches\\": 0, \\"bytes\\": 9, \\"gets\\": $n, \\"one_sided_gets\\": $n}" ;;
  "group-loader --output json scan "*)
    echo "{\\"key\\": \\"userv\\"} {\\"key\\": \\"user2-guide\\"}"  # loaded records, which begin alike
    n=$(missing benchmark)
    while [ $n != 20 ]; do echo "{\\"key\\": \\"user$n\\"}"; n=$((n + 1)); done ;;
  "group-loader --output json")
    echo "Creating rkv-cluster_group-loader_run ... done" >&2
    n=0
    while read -r line; do
      n=$((n + 1))
      if [ $n = 7 ]; then echo "kvclient: the outcome is unknown" >&2; else echo "{\\"key\\": $n}"; fi
      [ ! -e writer-ends ] || exit 4
    done ;;
  "group-bench -t "*)
    [ ! -e benchmark-ends ] || { echo "kvbench: nobody answers" >&2; exit 3; }
    echo $$ >benchmark
    trap '[ ! -e no-results ] || exit 130; echo "[OVERALL], Throughput(ops/sec), 1000"; echo "[UPDATE], Return=MAY_HAVE_HAPPENED, 2"; exit 4' INT
    n=0
    while :; do n=$((n + 10)); echo "2026-01-01 00:00:00:000 1 sec: $n operations; 1 current ops/sec"; sleep 0.01; done ;;
esac
"""


def configuration(primary, in_sync):
    members = [{"name": name, "address": "192.0.2.1:1", "epoch": f"{int(name in in_sync):016x}", "added_in": 1}
               for name in REPLICAS]
    return json.dumps({"format": 1, "primary": primary, "members": members}) + "\n"


class Replicated(Machine):
    def setUp(self):
        super().setUp()
        self.tool("docker", GROUP_DOCKER)
        self.tool("docker-compose", GROUP_COMPOSE)
        self.write("records.tsv", "a\t1\nb\t2\nc\t3\n")
        self.write("configuration", configuration("replica2", REPLICAS))
        self.write("without-replica2", configuration("replica3", ("replica1", "replica3")))
        self.write("again", configuration("replica3", REPLICAS))

    def finish(self, *arguments):
        """(exit status, stdout, stderr) of a run on a machine where nothing is left of earlier ones."""
        for name in "up", "calls", "state-replica2":
            if os.path.exists(self.path(name)):
                self.remove(name)
        self.write("configuration", configuration("replica2", REPLICAS))
        run = self.start("records.tsv", "--replicated", "--recordcount", "20", "--operations", "100", *arguments)
        printed, said = run.communicate(timeout=60)
        self.assertIn("docker rm -f -v", self.calls())  # whatever became of it
        return run.returncode, printed, said

    def test_the_primary_is_killed_and_all_is_compared_twice(self):
        status, printed, said = self.finish()
        self.assertEqual((status, said), (0, ""), printed)
        calls = self.calls()
        self.assertIn("docker kill --signal KILL replica2\n", calls)
        self.assertLess(calls.index("--signal KILL"), calls.index("docker start replica2"))
        self.assertEqual(calls.count("verify -"), 5)  # after the load, and two kinds of records twice
        self.assertRegex(printed, r"replica1, replica2, replica3 are in sync, replica2 is the primary")
        self.assertRegex(printed, r"(?m)^  replica3 took over$")
        self.assertRegex(printed, r"(?m)^loaded +3 +all equal +all equal$")
        self.assertRegex(printed, r"(?m)^of the writer +[\d,]{3,} +all equal +all equal$")
        self.assertRegex(printed, r"(?m)^of the benchmark \(keys\) +20 +all equal +all equal$")
        self.assertRegex(printed, r"(?m)^nobody served for \d+\.\d s: that long .* replica2 dead, until replica3 gave it$")
        self.assertRegex(printed, r"(?m)^writes and reads that failed, and so acknowledged nothing: 3$")
        self.assertTrue(printed.endswith(
            "every acknowledged record compared equal, after the death of replica2 and after its return\n"), printed)

    def test_over_tcp_the_group_that_is_kept_says_how_to_reach_it(self):
        self.remove("device")
        run = self.start("records.tsv", "--replicated", "--transport", "tcp", "--keep", "--recordcount", "20",
                         "--operations", "100")
        printed, said = run.communicate(timeout=60)
        self.assertEqual((run.returncode, said), (0, ""), printed)
        self.assertTrue(printed.startswith("TCP on 127.0.0.1, which is not RDMA: "), printed)
        self.assertIn("\n  export RKV_ADDRESS=127.0.0.1 RKV_TRANSPORT=tcp RKV_DEVICE=/dev/null RKV_MEMLOCK=65536 "
                      "RKV_GROUP_PORT1=7481 RKV_GROUP_PORT2=7483 RKV_GROUP_PORT3=7485\n", printed)
        self.assertNotIn("docker rm", self.calls())
        self.assertNotIn("bash ", self.calls())  # which would know devices

    def test_what_is_missing_is_seen_of_each_kind(self):
        for kind, row in ("writer", "of the writer"), ("benchmark", "of the benchmark"):
            with self.subTest(kind):
                self.write(f"missing-{kind}", "1\n")
                status, printed, _ = self.finish()
                self.remove(f"missing-{kind}")
                self.assertEqual(status, 1, printed)
                self.assertRegex(printed, rf"(?m)^{row}.* +1 different or missing +1 different or missing$")
                self.assertIn("NOT correct: see the table", printed)

    def test_a_writer_or_a_benchmark_that_ends_early_is_a_failure(self):
        for name, sentence in (("writer-ends", "the writer has ended: "),
                               ("benchmark-ends", "the benchmark has ended: kvbench: nobody answers")):
            with self.subTest(name):
                self.write(name, "")
                status, _, said = self.finish()
                self.remove(name)
                self.assertEqual(status, 4, said)
                self.assertIn(f"cluster: {sentence}", said)
                self.assertNotIn("--signal KILL", self.calls())

    def test_a_benchmark_that_ends_without_results_is_a_failure(self):
        self.write("no-results", "")
        status, _, said = self.finish()
        self.assertEqual(status, 4, said)
        self.assertIn("cluster: the benchmark ended without results\n", said)

    def in_no_time(self, *arguments):
        program = ("-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); import cluster, replicated, store; "
                         "store.HEALTHY_WITHIN_S = replicated.HEALTHY_WITHIN_S = 1; sys.exit(cluster.main())", FOLDER)
        run = self.start("records.tsv", "--replicated", *arguments, program=program)
        _, said = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 4, said)
        return said

    def test_replicas_that_do_not_get_in_sync(self):
        self.write("configuration", configuration("replica2", ("replica1", "replica2")))
        self.assertEqual(self.in_no_time(),
                         "cluster: not all of replica1, replica2, replica3 are in sync within 1 s\n")

    def test_nobody_takes_over(self):
        self.write("nobody", "")
        said = self.in_no_time("--recordcount", "20", "--operations", "100")
        self.assertEqual(said, "cluster: nobody took over from replica2 within 1 s\n")
        self.assertIn("docker rm -f -v", self.calls())

    def test_an_etcd_whose_port_is_taken(self):
        self.write("state-etcd", "exited unhealthy 1\n")
        self.write("log", "etcd: listen tcp 127.0.0.1:2379: bind: address already in use\n")
        status, _, said = self.finish()
        self.assertEqual((status, said), (4, "cluster: etcd did not start: etcd: listen tcp 127.0.0.1:2379: bind: "
                                             "address already in use\n"))


class WriterAlone(unittest.TestCase):
    def test_the_longest_wait_is_that_of_the_answer_that_came_late(self):
        """The script answers the third record when the test lets it."""
        read, write = os.pipe()
        script = 'n=0; while read -r _; do n=$((n + 1)); [ $n != 3 ] || read -r _ <&%d; echo "{}"; done' % read
        with group_of(["sh", "-c", script], stdin=-1, stdout=-1, pass_fds=[read]) as process:
            writer = Writer(process)
            await_that(lambda: len(writer.times) == 2, 60, "the script gave no two answers")
            begun = writer.times[-1]
            threading.Timer(0.3, os.write, (write, b"go\n")).start()
            writer.await_more(10, 60)
            writer.stop()
        os.close(read)
        os.close(write)
        self.assertGreaterEqual(writer.longest_wait_after(begun), 0.2)
        self.assertEqual(writer.longest_wait_after(begun), writer.times[2] - writer.times[1])
        self.assertLess(writer.longest_wait_after(writer.times[2]), writer.times[2] - writer.times[1])
        self.assertEqual(writer.acknowledged, list(range(len(writer.times))))
        self.assertIn(b"writer-0\tvalue 0\nwriter-1\tvalue 1\n", writer.records())


if __name__ == "__main__":
    unittest.main(verbosity=2)
