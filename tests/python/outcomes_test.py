"""What becomes of operations that are withdrawn, of many keys when some fail, and when Python runs out of
memory or a callback raises.

    PYTHONPATH=BUILD/python KVSERVER=BUILD/bin/kvserver python3 -m pytest tests/python

RKV_TEST_TRANSPORT: shm (the default), tcp or verbs.
"""

import asyncio
import contextlib
import datetime
import gc
import os
import signal
import subprocess
import sys
import time

import pytest
import rkv

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from programs import Server  # noqa: E402


TRANSPORT = os.environ.get("RKV_TEST_TRANSPORT", "shm")


@pytest.fixture(name="server", scope="module")
def running_server(tmp_path_factory):
    server = Server(os.environ["KVSERVER"], str(tmp_path_factory.mktemp("server")), transport=TRANSPORT)
    yield server
    assert server.stop() == 0


@pytest.fixture(name="client")
def connected_client(server):
    with rkv.Client(server=server.address, transport=TRANSPORT) as client:
        yield client


@contextlib.contextmanager
def stopped(server):
    server.process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(server.process.pid, os.WUNTRACED)  # each of its threads has stopped
    assert os.WIFSTOPPED(status)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_many_operations_are_cancelled_in_a_short_time(server):
    async def take(client, count):
        with stopped(server):
            operations = [client.incr(f"absent {i}") for i in range(count)]
            await asyncio.sleep(0.05)
            gc.disable()  # its time depends on all objects there are
            began = time.thread_time()
            for each in operations:
                each.cancel()
            while client.in_flight() != 0:
                await asyncio.sleep(0)
            took = time.thread_time() - began
            gc.enable()
        await client.incr("count")
        return took

    async def main():
        async with rkv.AsyncClient(server=server.address, timeout=60.0) as client:
            for _ in range(5):
                few, many = await take(client, 4000), await take(client, 16000)
                # Verbs are those of an emulated processor.
                if (many < 0.2 or TRANSPORT == "verbs") and many < 8 * few:
                    return
            pytest.fail(f"16,000 cancellations took {many:.3f} s, 4,000 {few:.3f} s")
    asyncio.run(main())


def test_a_callback_that_raises_stops_no_other_operation(server):
    class Late(Exception):
        """As a signal's handler raises."""

    class Once(asyncio.Future):
        """Raises when it is told of its end, at the first time."""
        has_raised = False

        def raise_once(self):
            if not self.has_raised:
                self.has_raised = True
                raise Late

        def set_result(self, value):
            self.raise_once()
            super().set_result(value)

        def set_exception(self, error):
            self.raise_once()
            super().set_exception(error)

    async def main():
        reported = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(type(context.get("exception"))))
        create = loop.create_future

        def begin(operation):
            loop.create_future = lambda: Once(loop=loop)
            try:
                return operation()
            finally:
                loop.create_future = create
        async with rkv.AsyncClient(server=server.address, timeout=5.0) as client:
            await client.put("key", b"value")
            assert await begin(lambda: client.get("key")) == b"value"
            for _ in range(3):
                with stopped(server):
                    refused = begin(lambda: client.get(""))
                    other = client.put("key", b"value", timeout=0.3)
                    with pytest.raises(rkv.InvalidArgument):
                        await asyncio.wait_for(refused, 10)
                    with pytest.raises(rkv.Timeout):  # nothing else wakes the client
                        await asyncio.wait_for(other, 10)
            assert reported == [Late] * 4
    asyncio.run(main())


def test_close_leaves_no_operation_although_each_callback_tries_again(server):
    async def main():
        client = rkv.AsyncClient(server=server.address)
        ended, refused = [], []

        def again(future=None):
            if future is not None:
                ended.append(future.exception())
                if future.exception() is None:
                    return
            try:
                client.get("absent").add_done_callback(again)
            except ValueError as error:
                refused.append(error)
        again()
        client.close()
        await asyncio.sleep(0.05)
        assert [type(each) for each in ended] == [rkv.Disconnected]
        assert len(refused) == 1 and client.in_flight() == 0
    asyncio.run(main())


OUT_OF_MEMORY = """
import asyncio, contextlib, ctypes, resource, sys, rkv
ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: what was freed is not kept for later
server = sys.argv[1]
size = 4 << 20
async def main():
    with rkv.Client(server=server) as client:
        async with rkv.AsyncClient(server=server) as loop_client:
            client.put("long", bytes(size))
            client.put("short", b"value")
            client.get("long")  # its buffers are there
            await loop_client.get("long")
            pages = int(open("/proc/self/statm").read().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 20),) * 2)
            taken = []  # what is left besides, as values that other threads still hold
            with contextlib.suppress(MemoryError):
                while True:
                    taken.append(bytearray(size))
            for _ in range(3):
                try:
                    client.get("long")
                    print("there was memory")
                except MemoryError:
                    print("MemoryError")
                ended = await asyncio.gather(*(loop_client.get(key) for key in ("long", "short", "long")),
                                             return_exceptions=True)
                print([bytes(each[:5]) if isinstance(each, bytes) else type(each).__name__ for each in ended])
            print(client.get("short"))
asyncio.run(main())
"""


def test_a_value_that_finds_no_memory_is_a_memory_error_of_its_operation(server):
    ended = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY, server.address], check=False, capture_output=True,
                           text=True)
    # The server grows meanwhile; a client warns on stderr that it cannot map the new memory.
    assert ended.stdout.splitlines() == \
        ["MemoryError", "['MemoryError', b'value', 'MemoryError']"] * 3 + ["b'value'"], ended
    assert ended.returncode == 0, ended


def test_each_key_of_many_has_its_result_when_another_fails(server, client):
    too_long = "k" * 2000
    items = [("each 1", "one"), (too_long, "v"), ("each 2", "two")]

    def check_puts(refused):
        first, wrong, last = refused.value.results
        assert isinstance(first, int) and isinstance(last, int) and last != first
        assert isinstance(wrong, rkv.TooLarge) and not wrong.may_have_happened
        assert refused.value.may_have_happened and refused.value.code == wrong.code

    def check_gets(refused):
        assert refused.value.results[0] == b"one" and refused.value.results[2] is None
        assert isinstance(refused.value.results[1], rkv.TooLarge)
        assert not refused.value.may_have_happened

    with pytest.raises(rkv.TooLarge) as refused:
        client.multi_put(items)
    check_puts(refused)
    with pytest.raises(rkv.TooLarge) as refused:
        client.multi_get(["each 1", too_long, "absent"])
    check_gets(refused)
    rooms = [bytearray(3), bytearray(2), bytearray(3)]
    with pytest.raises(rkv.TooLarge) as refused:
        client.multi_get_into(["each 1", "each 2", "absent"], rooms)
    length, wrong, absent = refused.value.results
    assert (length, wrong.needed, absent) == (3, 3, None) and bytes(rooms[0]) == b"one"

    async def main():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            with pytest.raises(rkv.TooLarge) as refused:
                await loop_client.multi_put(items)
            check_puts(refused)
            with pytest.raises(rkv.TooLarge) as refused:
                await loop_client.multi_get(["each 1", too_long, "absent"])
            check_gets(refused)
    asyncio.run(main())


def test_writes_of_many_that_may_have_happened_are_told_apart(server, client):
    items = {"k" * 2000: "v", "doubt": "v"}
    with stopped(server), pytest.raises(rkv.TooLarge) as refused:
        client.multi_put(items, timeout=0.3)
    assert refused.value.may_have_happened
    assert [each.may_have_happened for each in refused.value.results] == [False, True]


def test_a_value_that_does_not_fit_tells_its_length(server, client):
    client.put("long", b"v" * 1000)
    with pytest.raises(rkv.TooLarge) as refused:
        client.get_into("long", bytearray(999))
    assert refused.value.needed == 1000
    with pytest.raises(rkv.TooLarge) as refused:
        client.put("k" * 2000, "v")
    assert refused.value.needed is None

    async def main():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            with pytest.raises(rkv.TooLarge) as refused:
                await loop_client.get_into("long", bytearray(999))
            assert refused.value.needed == 1000
    asyncio.run(main())


def test_pythons_own_classes_of_errors_catch(server, client):
    with stopped(server), pytest.raises(TimeoutError):
        client.put("key", "value", timeout=0.2)
    with pytest.raises(ConnectionError):
        rkv.Client(server="127.0.0.1:1", transport="tcp", repeat_connect=False)

    async def main():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            future = loop_client.get("key")
            assert isinstance(future, asyncio.Future)
        with pytest.raises(ConnectionError):
            await future
    asyncio.run(main())


def test_times_and_numbers_of_python(server, client):
    client.put("timed", "value", ttl=datetime.timedelta(hours=1), timeout=datetime.timedelta(seconds=5))
    assert client.get("timed", timeout=5) == b"value"
    with pytest.raises(ValueError, match="seconds above 0"):
        client.put("timed", "value", ttl=datetime.timedelta(0))
    for wrong in ("5", [5], b"5", {}):
        with pytest.raises(TypeError, match="a number of seconds, or a timedelta"):
            client.get("timed", timeout=wrong)
    for wrong in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(OverflowError, match="64 bits"):
            client.incr("number", wrong)
    for wrong in (1 << 64, -1):
        with pytest.raises(OverflowError, match="64 bits"):
            client.put("timed", "value", if_version=wrong)
    with pytest.raises(TypeError, match="whole number"):
        client.incr("number", 1.5)
    assert client.incr("number", (1 << 63) - 1) == (1 << 63) - 1

    async def main():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            await loop_client.put("timed", "value", ttl=datetime.timedelta(hours=1))
            with pytest.raises(OverflowError, match="64 bits"):
                loop_client.incr("number", 1 << 63)
    asyncio.run(main())


def test_one_key_in_the_place_of_many_is_refused(server, client):
    for wrong in ("ab", b"ab", bytearray(b"ab")):
        with pytest.raises(TypeError, match="a list"):
            client.multi_get(wrong)
        with pytest.raises(TypeError, match="a list"):
            client.multi_get_into(wrong, [bytearray(9), bytearray(9)])
    for wrong in ("ab", ["ab"], [b"ab"], [("a", "b", "c")]):
        with pytest.raises(ValueError, match="a pair of key and value"):
            client.multi_put(wrong)

    async def main():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            with pytest.raises(TypeError, match="a list"):
                await loop_client.multi_get("ab")
            with pytest.raises(ValueError, match="a pair of key and value"):
                await loop_client.multi_put([("key of many", "value"), "ab"])
            await asyncio.sleep(0.01)
            assert loop_client.in_flight() == 0
            assert await loop_client.get("key of many") is None  # nothing was sent
    asyncio.run(main())


def test_a_server_that_is_none_or_a_url_is_refused():
    for given, sentence in ((None, "server is None"), ("redis://127.0.0.1:1", "HOST:PORT, and not a URL")):
        for made in (rkv.Client, lambda **options: asyncio.run(asynchronous(**options))):
            with pytest.raises(ValueError, match=sentence):
                made(server=given)


async def asynchronous(**options):
    rkv.AsyncClient(**options)


def test_errors_have_the_sentence_of_the_server(server, client):
    with pytest.raises(rkv.Unsupported, match="not supported: .*--data-dir"):
        next(client.scan())
    with pytest.raises(rkv.Unsupported, match="not supported: .*--data-dir"):
        client.put("key", "value", durability="sync")
    with pytest.raises(rkv.Unsupported, match="not supported: .*--data-dir"):
        client.multi_put({"key": "value"}, durability="sync")
    with pytest.raises(rkv.InvalidArgument) as refused:
        client.get("")
    assert "--data-dir" not in str(refused.value)

    async def main():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            with pytest.raises(rkv.Unsupported, match="not supported: .*--data-dir"):
                await loop_client.put("key", "value", durability="sync")
            with pytest.raises(rkv.InvalidArgument) as refused:
                await loop_client.get("")
            assert "--data-dir" not in str(refused.value)
    asyncio.run(main())
