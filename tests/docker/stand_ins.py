"""A machine made of scripts: docker, docker-compose and the RDMA device, for what docker/cluster.py says
and does where they answer this or that. The real ones are in cluster_test.sh."""

import os
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "docker")
CLUSTER = os.path.join(FOLDER, "cluster.py")

# A machine on which the servers come up, and nothing further works. bash stands for native.sh.
DOCKER = """
[ -e up ] && [ -e "fails_$1_$2" ] && [ $# = 4 ] && { echo "the daemon is gone" >&2; exit 1; }
case "$1 $2" in
  "info "*) echo 20.10 ;;
  "compose "*) exit 1 ;;
  "ps "*) if [ $# -gt 4 ] || [ -e up ]; then echo c-id; fi; cat left 2>/dev/null ;;
  "volume ls") echo v-id ;;
  "inspect "*) case "$*" in *Health.Log*) cat checks ;; *) shift 3; for _; do cat state; done ;; esac ;;
  "logs "*) cat log ;;
esac
exit 0
"""
COMPOSE = """
echo >up
echo "$RKV_ADDRESS $RKV_TRANSPORT $RKV_DEVICE $RKV_MEMLOCK" >environment
case "$*" in *" run "*) exit 4 ;; esac
"""
DEVICE = """
case "$2" in
  *native_device) cat device 2>/dev/null ;;
  *native_rxe_possible) [ ! -e impossible ] ;;
  *create_native_rxe) [ -e cannot ] && { echo "softroce: cannot load rdma_rxe" >&2; exit 125; }; echo rxe0 192.0.2.1 >device ;;
  *"command -v rdma") exit 0 ;;
esac
"""


class Machine(unittest.TestCase):
    """Its scratch directory, with the programs that cluster.py finds."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="rkv-stand-ins-")
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name
        os.mkdir(self.path("bin"))
        self.tool("docker", DOCKER)
        self.tool("docker-compose", COMPOSE)
        self.tool("bash", DEVICE)
        self.write("device", "rxe0 192.0.2.1\n")
        self.write("state", "running healthy 0\n")
        self.write("log", "")
        self.write("records.tsv", "key\tvalue\n")

    def path(self, name):
        return os.path.join(self.scratch, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def tool(self, name, script):
        path = os.path.join("bin", name)
        self.write(path, f'#!/bin/sh\necho "{name} $*" >>calls\n{script}')
        os.chmod(self.path(path), stat.S_IRWXU)

    def remove(self, name):
        os.remove(self.path(name))

    def start(self, *arguments, program=(CLUSTER,), interpreter=sys.executable, **environment):
        os.makedirs(self.path("system"), exist_ok=True)
        for name in "sh", "cat", "sleep", "dirname", "python3":  # and no docker of this machine
            if not os.path.exists(self.path(f"system/{name}")):
                os.symlink(f"/bin/{name}", self.path(f"system/{name}"))
        return subprocess.Popen(
            [interpreter, *program, *arguments], cwd=self.scratch, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={"PATH": f"{self.path('bin')}:{self.path('system')}",
                                                          "PYTHONDONTWRITEBYTECODE": "1", **environment})

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def calls(self):
        return self.read("calls")
