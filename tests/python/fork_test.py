"""Clients of a process that forks, four ways: the child only ends, it makes a client of its own in the same place,
it is forked while threads are in calls, and both use it. And what else a child inherits.

    PYTHONPATH=BUILD/python KVSERVER=BUILD/bin/kvserver python3 -m pytest tests/python/fork_test.py
"""

import asyncio
import gc
import os
import signal
import sys
import threading
import time

import numpy
import pytest
import rkv

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from programs import Server, run  # noqa: E402

TRANSPORT = os.environ.get("RKV_TEST_TRANSPORT", "shm")
TRANSPORTS = ["verbs"] if TRANSPORT == "verbs" else ["shm", "tcp"]
needs_own_connection = pytest.mark.skipif(TRANSPORT == "verbs", reason="a child has no RDMA after its parent had")


@pytest.fixture(name="server", scope="module", params=TRANSPORTS)
def running_server(request, tmp_path_factory):
    before = os.environ.get("RKV_SHM_DIR")
    server = Server(os.environ["KVSERVER"], str(tmp_path_factory.mktemp(request.param)), transport=request.param,
                    port=7473)
    server.transport = request.param
    yield server
    assert server.stop() == 0
    if before is not None:
        os.environ["RKV_SHM_DIR"] = before


@pytest.fixture(name="client")
def connected_client(server):
    with rkv.Client(server=server.address, transport=server.transport, timeout=10) as client:
        client.delete("parent")
        client.delete("child")
        yield client


def child(body):
    """Forks; the child calls body() and ends without Python's end. Its number."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
            os._exit(0)
        except BaseException as error:
            print("in the child:", repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return pid


def check(pid, seconds=30):
    """It ends well, and does not hang."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


# Python ends, with everything that it then destroys.
ENDS = """
import os, sys, rkv
client = rkv.Client(server={address!r}, transport={transport!r}, timeout=10)
memory = client.allocate(4096)
rkv.Client(server={address!r}, transport={transport!r}).close()
for i in range(4):
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert client.incr("ends") == i + 1, "its connection was disturbed"
client.delete("ends")
"""


def test_a_child_that_only_ends(server):
    code = ENDS.format(address=server.address, transport=server.transport)
    run(sys.executable, "-c", code, timeout=60)


def test_a_child_that_ends_while_threads_are_in_calls(server):
    threads = """
import threading
def use():
    while True: client.get("key")
for i in range(4): threading.Thread(target=use, daemon=True).start()
for"""
    code = ENDS.format(address=server.address, transport=server.transport).replace("\nfor", threads)
    run(sys.executable, "-c", code, timeout=60)


@needs_own_connection
def test_a_child_that_makes_a_client_in_the_same_place(server, client):
    def body():
        nonlocal client
        client = rkv.Client(server=server.address, transport=server.transport)
        gc.collect()
        assert client.incr("child") > 0
        client.close()
    for i in range(3):
        check(child(body))
        assert client.incr("parent") == i + 1


@needs_own_connection
def test_a_child_opens_a_connection_of_its_own(client):
    """Also in many threads, and in a child of the child. Long values were mixed."""
    size = 1_000_000
    values = {who: [bytes([i]) + who * size for i in range(8)] for who in (b"P", b"C")}

    def use(who):
        for i in range(160):
            key = who + b"%d" % (i % 8)
            client.put(key, values[who][i % 8])
            assert client.get(key) == values[who][i % 8]

    def body():
        failed = []
        def in_thread():
            try:
                assert client.incr("child") > 0
            except BaseException as error:
                failed.append(error)
        threads = [threading.Thread(target=in_thread) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert client.get_counter("child") == 8
        check(child(lambda: client.incr("child")))
        use(b"C")

    pid = child(body)
    use(b"P")
    check(pid, 120)
    for who in (b"P", b"C"):
        for i in range(8):
            assert client.get(who + b"%d" % i) == values[who][i]
    assert client.get_counter("child") == 9


@needs_own_connection
def test_no_addition_is_lost_when_both_add(client):
    def add(who):
        for i in range(300):
            assert client.incr(who) == i + 1
    pid = child(lambda: add("child"))
    add("parent")
    check(pid)
    assert client.get_counter("parent") == client.get_counter("child") == 300


@needs_own_connection
def test_a_child_that_is_forked_while_threads_are_in_calls(client):
    stops = threading.Event()
    sums = [0] * 4

    def use(number):
        while not stops.is_set():
            client.incr("parent")
            sums[number] += 1
    threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for i in range(8):
            check(child(lambda: client.incr("child")))
            time.sleep(0.02)
    finally:
        stops.set()
        for thread in threads:
            thread.join()
    assert client.get_counter("parent") == sum(sums)
    assert client.get_counter("child") == 8


def test_closed_clients_stay_closed_and_a_child_may_close(server, client):
    closed = rkv.Client(server=server.address, transport=server.transport)
    closed.close()

    def body():
        with pytest.raises(ValueError, match="closed"):
            closed.get("key")
        client.close()
        with pytest.raises(ValueError, match="closed"):
            client.get("key")
    check(child(body))
    client.put("key", "value")


def test_registered_memory_of_the_parent_is_refused(client):
    memory = client.allocate(1 << 20)
    array = numpy.frombuffer(memory, dtype=numpy.uint8)
    client.put("long", bytes(1 << 20))

    def body():
        with pytest.raises(BufferError, match="fork"):
            memoryview(memory)
        with pytest.raises(rkv.Unsupported if TRANSPORT == "verbs" else BufferError, match="fork"):
            client.get_into("long", memory)  # connects again first
    check(child(body))
    assert client.get_into("long", array) == 1 << 20


def test_an_asynchronous_client_is_closed_in_a_child(server):
    async def use():
        client = rkv.AsyncClient(server=server.address, transport=server.transport)
        waits = [client.incr("asynchronous") for _ in range(100)]

        async def in_child():
            with pytest.raises(ValueError, match="fork"):
                await client.get("key")
            client.close()
            assert client.in_flight() == 0
            if TRANSPORT != "verbs":
                async with rkv.AsyncClient(server=server.address, transport=server.transport) as own:
                    assert await own.get("absent") is None

        def body():
            asyncio.events._set_running_loop(None)  # as multiprocessing does not
            asyncio.run(in_child())
        check(child(body))
        assert sorted(await asyncio.gather(*waits))[-1] >= 100
        client.close()
    asyncio.run(use())
