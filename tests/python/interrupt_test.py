"""Signals while the main thread is in a call: what a handler raises ends the call soon, whatever its time-out."""

import os
import signal
import sys
import threading
import time

import pytest
import rkv

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from programs import Server  # noqa: E402

TRANSPORT = os.environ.get("RKV_TEST_TRANSPORT", "shm")


class Interrupted(Exception):
    pass


@pytest.fixture(name="stopped")
def stopped_server(tmp_path):
    """A client whose server stands still."""
    before = os.environ.get("RKV_SHM_DIR")
    server = Server(os.environ["KVSERVER"], str(tmp_path), transport=TRANSPORT, port=7474)
    client = rkv.Client(server=server.address, transport=TRANSPORT, timeout=60)
    client.put("key", "value")
    client.ping()
    yield server, client
    if server.process.poll() is None:
        os.kill(server.process.pid, signal.SIGCONT)
        assert server.stop() == 0
    client.close()
    if before is not None:
        os.environ["RKV_SHM_DIR"] = before


def interrupted(call):
    def handle(*_):
        raise Interrupted
    before = signal.signal(signal.SIGUSR1, handle)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    began = time.monotonic()
    timer.start()
    try:
        with pytest.raises(Interrupted):
            call()
        assert time.monotonic() - began < 10  # of 60 s
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_call_ends_when_a_signals_handler_raises(stopped):
    server, client = stopped
    os.kill(server.process.pid, signal.SIGSTOP)
    keys = [f"key {i}" for i in range(1000)]
    calls = {
        "put": lambda: client.put("key", "new"),
        "incr": lambda: client.incr("number"),
        "delete": lambda: client.delete("other"),
        "multi_put": lambda: client.multi_put([(key, b"value") for key in keys]),
        "ping": lambda: client.ping(),
        "server_stats": lambda: client.server_stats(),
        "connect": lambda: rkv.Client(server=server.address, transport=TRANSPORT, timeout=60),
    }
    for call in calls.values():
        interrupted(call)
    # Beside a thread that drives the connection.
    waits = threading.Thread(target=lambda: client.put("thread", "value"))
    waits.start()
    time.sleep(0.2)
    interrupted(lambda: client.put("key", "new"))
    os.kill(server.process.pid, signal.SIGCONT)
    waits.join()
    assert client.get("thread") == b"value"
    client.put("key", "last")
    assert client.get("key") == b"last"


def test_a_handler_that_does_not_raise_ends_no_call_and_may_use_the_client(stopped):
    server, client = stopped
    seen = []

    def handle(*_):
        os.kill(server.process.pid, signal.SIGCONT)
        seen.append(client.get("key"))
    before = signal.signal(signal.SIGUSR1, handle)
    os.kill(server.process.pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        assert client.put("other", "value") > 0
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert seen == [b"value"]


def test_a_wait_for_a_dead_server_ends_too(stopped):
    server, client = stopped
    server.process.kill()
    server.process.wait()
    interrupted(lambda: client.get("key"))
    interrupted(lambda: client.multi_get(["key", "other"]))
