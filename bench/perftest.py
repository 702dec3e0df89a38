"""perftest's programs as the raw verbs that the store is compared with."""

import math
import re
import subprocess

from common import Failed, wait_for


def perftest(tool, address, port, size, extra):
    """The columns of a perftest program's result line. perftest now and then misjudges the clock
    of an emulated processor and prints `inf`, or its server does not end; such a run is taken
    again."""
    for _ in range(5):
        try:
            columns = perftest_once(tool, address, port, size, extra)
        except subprocess.TimeoutExpired:
            continue
        if all(math.isfinite(column) for column in columns):
            return columns
    raise Failed(f"{tool} printed no finite figures in five runs")


def perftest_once(tool, address, port, size, extra):
    base = [tool, "-R", "-F", "-p", str(port), "-s", str(size), *extra]
    server = subprocess.Popen(base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        listening = lambda: rdma_listening(port)
        wait_for(listening, tool, server)
        client = subprocess.run([*base, address.rpartition(":")[0]], check=False,
                                capture_output=True, text=True, timeout=300)
        server.wait(timeout=60)
    finally:
        if server.poll() is None:
            server.kill()
    for line in client.stdout.splitlines():
        fields = line.split()
        if fields and fields[0] == str(size):
            return [float(field) for field in fields]
    raise Failed(f"{tool} printed no result line:\n{client.stdout}{client.stderr}")


def rdma_listening(port):
    """Whether something listens on a port of the connection manager (rdma-resource(8))."""
    shown = subprocess.run(["rdma", "-j", "resource", "show", "cm_id"], check=False,
                           capture_output=True, text=True)
    return bool(re.search(rf'"(src-addr|src_addr)":\s*"[^"]*",\s*"(src-port|src_port)":\s*"?{port}\b',
                          shown.stdout)) or f":{port}" in shown.stdout
