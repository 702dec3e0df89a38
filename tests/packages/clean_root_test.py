#!/usr/bin/env python3
"""The packages that `./run package` makes, installed by apt in a Debian that has nothing else:
kvserver and kvclient start there and speak over shared memory, so does Python by the wheel and by its
package, a program builds against the library, and removal leaves nothing but data.

    tests/packages/clean_root_test.py [unittest's arguments]

Needs root (or sudo that asks nothing) and the network: the new root comes from the mirror that this
machine's apt is configured with.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import debian_root  # noqa: E402
from debian_root import AS_ROOT  # noqa: E402
from programs import run  # noqa: E402

USE = r"""
set -eu
export RKV_SHM_DIR=/tmp/rkv-shm
kvserver --transport shm --memory 32MiB --data-dir /var/lib/rkv 2>/tmp/log &
server=$!
trap 'cat /tmp/log >&2' EXIT
until grep -q "kvserver ready" /tmp/log; do kill -0 $server; sleep 0.01; done
COMMANDS
kill $server
wait $server
trap - EXIT
"""

PROGRAMS = r"""
kvclient --transport shm put greeting hello
kvclient --transport shm get greeting
export KVCLIENT_TRANSPORT=shm
kvbench -load -P /usr/share/rkv/workloads/workloada -p recordcount=1000 >&2
kvbench -t -P /usr/share/rkv/workloads/workloada -p recordcount=1000 -p operationcount=1000 >&2
"""

PYTHON = r"""
INTERPRETER -c '
import rkv
with rkv.Client(transport="shm") as client:
    print(client.get("greeting").decode(), end="")
'
"""

BUILD = r"""
set -eu
cat >/tmp/program.cc
g++ -std=c++23 /tmp/program.cc -o /tmp/program $(pkg-config --cflags --libs MODULE)
ldd /tmp/program | awk '/librkv/ {print $1}'
"""


class CleanRoot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run(os.path.join(SOURCE, "run"), "package")
        cls.scratch = tempfile.mkdtemp(prefix="rkv-root-")
        cls.root = os.path.join(cls.scratch, "root")
        cls.addClassCleanup(os.rmdir, cls.scratch)
        # In memory: dpkg syncs every file that it unpacks.
        run(*AS_ROOT, "mount", "-t", "tmpfs", "-o", "size=3g,mode=755", "tmpfs", cls.scratch)
        cls.addClassCleanup(run, *AS_ROOT, "umount", cls.scratch)
        address, release = debian_root.mirror()
        debian_root.make(cls.root, release, address)

    def inside(self, script, text=None):
        """What a shell script prints within the root."""
        done = subprocess.run(debian_root.inside(self.root, script), check=False, input=text,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{script} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, *names):
        for name in names:
            path, = glob.glob(os.path.join(SOURCE, "build", "package", f"{name}_*.deb"))
            run(*AS_ROOT, "cp", path, f"{self.root}/tmp/{name}.deb")
        files = " ".join(f"/tmp/{name}.deb" for name in names)
        self.inside(f"apt-get -q -y install --no-install-recommends {files}")

    def use(self, commands):
        self.assertEqual(self.inside(USE.replace("COMMANDS", commands)), "hello")

    def use_wheel(self):
        wheel, = glob.glob(os.path.join(SOURCE, "build", "package", "*.whl"))
        run(*AS_ROOT, "cp", wheel, self.root + "/tmp")
        library, = glob.glob(os.path.join(SOURCE, "build", "package", "librkv0.1_*.deb"))
        needed = re.findall(r"(?:^|, )([\w.+-]+)", run("dpkg-deb", "-f", library, "Depends"))
        self.inside(f"apt-get -q -y install --no-install-recommends python3-venv {' '.join(needed)}")
        self.inside(f"python3 -m venv /tmp/venv && /tmp/venv/bin/pip install --no-index /tmp/{os.path.basename(wheel)}")
        self.use(PYTHON.replace("INTERPRETER", "/tmp/venv/bin/python3"))

    def test_lintian_has_nothing_to_say(self):
        self.assertEqual(run("lintian", "--allow-root", *glob.glob(os.path.join(SOURCE, "build", "package", "*.deb"))), "")

    def test_installed_used_and_removed(self):
        self.install("rkv-server", "rkv-tools")
        self.use(PROGRAMS)
        self.use(PROGRAMS)  # on the data of the first
        self.use_wheel()
        self.install("librkv0.1", "librkv-dev", "librkv-rdma-extras0.1", "librkv-rdma-extras-dev", "python3-rkv")
        self.use(PYTHON.replace("INTERPRETER", "python3"))
        self.inside("apt-get -q -y install --no-install-recommends g++ pkg-config")
        for name, module, loaded in (
                ("store", "rkv", ["librkv.so.0.1"]),
                ("extras", "rkv-rdma-extras", ["librkv.so.0.1", "librkv_rdma_extras.so.0.1"])):
            with open(os.path.join(HERE, "..", "embedding", "program", f"{name}.cc"),
                      encoding="utf-8") as program:
                printed = self.inside(BUILD.replace("MODULE", module), program.read())
            self.assertEqual(sorted(printed.split()), loaded)
        # As `systemctl enable` does.
        self.inside("cd /etc/systemd/system && mkdir -p multi-user.target.wants &&"
                    " ln -s /usr/lib/systemd/system/kvserver.service multi-user.target.wants")
        self.inside("apt-get -q -y purge rkv-server rkv-tools librkv0.1 librkv-dev"
                    " librkv-rdma-extras0.1 librkv-rdma-extras-dev python3-rkv")
        left = self.inside("find /usr /etc /var/lib/rkv /var/lib/systemd -name '*rkv*' -o -name 'kv[sc][el]*' -o -name 'kvb*'")
        self.assertEqual(left, "/var/lib/rkv\n", "the data, and nothing else")


if __name__ == "__main__":
    if missing := debian_root.missing_tool():
        sys.exit(missing)
    unittest.main(verbosity=2)
