#!/usr/bin/env python3
"""What docker/cluster.py says, and how it ends, on machines where something is missing or goes wrong:
docker, docker-compose and the machine's RDMA device are scripts (stand_ins.py). The real ones are in
cluster_test.sh."""

import itertools
import os
import signal
import sys
import time
import unittest

sys.dont_write_bytecode = True

from stand_ins import CLUSTER, DOCKER, Machine

RUN = os.path.join(os.path.dirname(os.path.dirname(CLUSTER)), "run")
# Told to end, it has yet made another container when it does; what it has started does not care.
BUSY_COMPOSE = """
echo >up
trap 'echo late-id >left; exit 1' TERM
sh -c 'trap "" TERM; echo $$ >started; echo >reached; exec sleep 60' &
wait
"""


class Complaints(Machine):
    def expect(self, status, sentence, *arguments, **settings):
        run = self.start(*(arguments or ["records.tsv"]), **settings)
        _, said = run.communicate(timeout=60)
        self.assertEqual(run.returncode, status, said)
        self.assertIn(sentence, said)
        self.assertEqual(said.count("\n"), 1, f"one sentence: {said}")

    def expect_taken_down(self):
        self.assertIn("docker rm -f -v c-id", self.calls())
        self.assertIn("docker volume rm -f v-id", self.calls())

    def expect_ended(self, pid):
        """Killed; it may not have been waited for yet."""
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                self.assertEqual(file.read().rpartition(")")[2].split()[0], "Z")
        except (FileNotFoundError, ProcessLookupError):
            pass

    def test_usage(self):
        self.expect(2, "cluster: FILE with records is missing", "--keep")
        self.expect(2, "nowhere.tsv cannot be read: No such file", "nowhere.tsv")
        self.expect(2, "--port needs 1 to 63533", "records.tsv", "--port", "63534")
        self.expect(2, "--operations needs 1 or more", "records.tsv", "--operations", "0")
        self.expect(2, "unrecognized arguments: --prot", "records.tsv", "--prot", "1")
        self.expect(2, "unrecognized arguments: --prot", "records.tsv", "--replicated", "--prot", "1")
        self.expect(2, "--port needs 1 to 63530", "records.tsv", "--replicated", "--port", "63531")
        self.expect(2, "--etcd-port needs 1 to 65534", "records.tsv", "--replicated", "--etcd-port", "65535")
        self.expect(2, "--etcd-port is for --replicated: without", "records.tsv", "--etcd-port", "2379")
        self.expect(2, "--transport needs verbs or tcp, not 'shm'", "records.tsv", "--transport", "shm")
        self.expect(2, "--transport needs verbs or tcp, not ''", "records.tsv", "--transport=")
        self.expect(2, "argument --transport: expected one argument", "records.tsv", "--transport")
        self.expect(2, "one FILE with records, not 2: records.tsv other.tsv", "records.tsv", "other.tsv")
        self.expect(2, "one FILE with records, not 3: a.tsv b.tsv c.tsv", "a.tsv", "--keep", "b.tsv", "--port", "7471",
                    "c.tsv")
        self.assertEqual(self.calls(), "")

    def test_options_of_the_front_door_in_any_order(self):
        """cluster.py would complain of --vm, and of --etcd-port without --replicated, before it does of this
        --transport."""
        options = ["records.tsv", "--etcd-port", "2379"], ["--vm"], ["--replicated"], ["--transport", "shm"]
        for order in itertools.permutations(options):
            with self.subTest(order):
                self.expect(2, "--transport needs verbs or tcp, not 'shm'", "cluster", *itertools.chain(*order),
                            program=(RUN,), interpreter="/bin/bash")
        self.assertEqual(self.calls(), "")

    def test_the_front_door_takes_file_anywhere(self):
        front_door = {"program": (RUN,), "interpreter": "/bin/bash"}
        file, *options = ["records.tsv"], ["--transport", "tcp"], ["--threads", "3"], ["--keep"]
        for at in range(4):
            with self.subTest(at):
                self.expect(4, "cluster: loader: `load -` ended with 4", "cluster",
                            *itertools.chain(*options[:at], file, *options[at:]), **front_door)
                self.assertEqual(self.read("environment").split()[1], "tcp")
                self.remove("up")
        self.remove("calls")
        self.expect(2, "one FILE with records, not 2: records.tsv other.tsv", "cluster", "--vm", "records.tsv",
                    "--keep", "other.tsv", **front_door)
        self.expect(2, "no such file, or not readable: nowhere.tsv", "cluster", "--port", "7471", "nowhere.tsv",
                    **front_door)
        self.assertEqual(self.calls(), "")

    def test_no_docker(self):
        self.remove("bin/docker")
        self.expect(3, "cluster: docker is missing: apt-get install docker.io docker-compose")
        self.expect(3, "cluster: docker is missing", "records.tsv", "--replicated")

    def test_no_daemon(self):
        self.tool("docker", 'echo "Cannot connect to the Docker daemon at unix:///x" >&2; exit 1')
        self.expect(3, "docker's daemon does not answer (Cannot connect to the Docker daemon at unix:///x): start")

    def test_daemon_of_others(self):
        self.tool("docker", 'echo "dial unix /x: connect: permission denied" >&2; exit 1')
        self.expect(3, "refuses this user's commands: use sudo")

    def test_a_daemon_that_warns_of_something_denied(self):
        warns = 'case $1 in info) echo "WARNING: /x/config.json: permission denied" >&2 ;; esac\n'
        self.tool("docker", warns + DOCKER)
        self.expect(4, "cluster: loader: `load -` ended with 4")

    def test_no_compose(self):
        self.remove("bin/docker-compose")
        self.expect(3, "neither `docker compose` nor docker-compose is here")

    def test_no_device_and_no_way_to_make_one(self):
        self.remove("device")
        self.write("impossible", "")
        self.expect(3, "this kernel has no rdma_rxe: `./run cluster --vm` does all of it in a small VM, "
                       "`./run cluster --transport tcp` without a device\n")

    def test_a_device_that_this_user_may_not_make(self):
        self.remove("device")
        self.write("cannot", "")
        self.expect(3, "none can be created (softroce: cannot load rdma_rxe): as root, `./run softroce --native`")

    def test_a_device_that_was_made_goes_again_one_that_was_there_stays(self):
        self.expect(4, "loader")
        self.assertNotIn("rdma link delete", self.calls())
        self.remove("up")
        self.remove("device")
        self.expect(4, "loader")
        self.assertIn("rdma link delete rxe0", self.calls())

    def test_over_tcp_no_device_is_looked_for(self):
        self.remove("device")
        self.write("impossible", "")
        run = self.start("records.tsv", "--transport", "tcp")
        printed, said = run.communicate(timeout=60)
        self.assertEqual((run.returncode, said), (4, "cluster: loader: `load -` ended with 4: no output\n"))
        self.assertTrue(printed.startswith("TCP on 127.0.0.1, which is not RDMA: "), printed)
        self.assertIn("  server1  127.0.0.1:7471  healthy\n", printed)
        self.assertNotIn("bash ", self.calls())  # which would know devices
        self.expect_taken_down()

    def test_compose_gets_the_transport_whatever_the_callers_environment_has(self):
        for arguments, wanted in (
                ([], "192.0.2.1 verbs /dev/infiniband -1\n"),
                (["--transport", "verbs"], "192.0.2.1 verbs /dev/infiniband -1\n"),
                (["--transport", "tcp"], "127.0.0.1 tcp /dev/null 65536\n")):
            with self.subTest(arguments):
                self.expect(4, "loader", "records.tsv", *arguments, RKV_ADDRESS="192.0.2.9", RKV_TRANSPORT="other",
                            RKV_DEVICE="/dev/other", RKV_MEMLOCK="1")
                self.assertEqual(self.read("environment"), wanted)
                self.remove("up")

    def test_a_cluster_is_there_already(self):
        self.write("left", "old-id\n")
        self.expect(3, "`./run cluster --down` removes them")
        self.assertNotIn("rm -f", self.calls())

    def test_taken_port(self):
        self.write("state", "exited unhealthy 3\n")
        self.write("log", "ready soon\nkvserver: 192.0.2.1:7471: something else listens on this address and port\n")
        self.expect(3, "server1 did not start: kvserver: 192.0.2.1:7471: something else listens")
        self.expect_taken_down()

    def test_a_server_that_dies_at_its_start(self):
        self.write("state", "exited unhealthy 4\n")
        self.write("log", "kvserver: the data directory is damaged\n")
        self.expect(4, "server1 did not start: kvserver: the data directory is damaged")
        self.expect_taken_down()

    def test_a_server_that_does_not_get_healthy(self):
        at_once = ("-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); import cluster, store; "
                         "store.HEALTHY_WITHIN_S = 0; sys.exit(cluster.main())", os.path.dirname(CLUSTER))
        self.write("state", "running starting 0\n")
        self.write("checks", "")
        self.expect(4, "server1, server2, server3 not healthy within 0 s; the last check of the first: no check has",
                    program=at_once)
        self.remove("up")
        self.write("checks", '"first"\n"transport verbs\\nkvclient: nobody answers\\n"\n')
        self.expect(4, "the last check of the first: kvclient: nobody answers", program=at_once)

    def test_a_step_that_fails(self):
        self.expect(4, "cluster: loader: `load -` ended with 4")
        self.expect_taken_down()

    def test_options_alone_are_checked_before_anything_is_built(self):
        for arguments, found in (["--replicated"], ""), (["--replicated", "--port", "7471", "a.tsv"], "a.tsv\n"):
            run = self.start(*arguments, "--find-file")
            self.assertEqual((*run.communicate(timeout=60), run.returncode), (found, "", 0))
        self.expect(2, "--port needs 1 to 63533", "--find-file", "--port", "63534")
        self.assertEqual(self.calls(), "")

    def test_no_programs(self):
        self.expect(3, "no kvserver in empty: ./run build release", "records.tsv", "--programs", "empty")

    def test_a_taking_down_that_fails_is_reported_too_and_the_device_goes(self):
        for failing, sentence in (("fails_ps_-aq", "cannot list the containers that are left"),
                                  ("fails_rm_-f", "not all containers could be removed: docker rm -f -v c-id")):
            with self.subTest(failing):
                for name in "device", "up", "calls":
                    if os.path.exists(self.path(name)):
                        self.remove(name)
                self.write(failing, "")
                run = self.start("records.tsv")
                _, said = run.communicate(timeout=60)
                self.remove(failing)
                self.assertEqual(run.returncode, 4, said)
                first, second = said.splitlines()
                self.assertIn("cluster: loader: `load -` ended with 4", first)
                self.assertIn(f"cluster: {sentence}", second)
                self.assertIn("rdma link delete rxe0", self.calls())

    def test_signals_to_the_program_alone(self):
        self.tool("docker-compose", BUSY_COMPOSE)
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            with self.subTest(number):
                for name in "calls", "reached", "up", "left":
                    if os.path.exists(self.path(name)):
                        self.remove(name)
                run = self.start("records.tsv")
                while not os.path.exists(self.path("reached")) and run.poll() is None:
                    time.sleep(0.01)
                run.send_signal(number)
                _, said = run.communicate(timeout=60)
                self.assertEqual(run.returncode, 128 + number, said)
                self.assertEqual(said, "cluster: ended by a signal\n")
                self.assertIn("docker rm -f -v c-id late-id", self.calls())
                self.assertIn("docker volume rm -f v-id", self.calls())
                with open(self.path("started"), encoding="utf-8") as started:
                    self.expect_ended(int(started.read()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
