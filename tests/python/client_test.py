"""The Python package against a kvserver: values both ways, errors, threads, asyncio, wrong arguments.

    PYTHONPATH=BUILD/python KVSERVER=BUILD/bin/kvserver python3 -m pytest tests/python

RKV_TEST_TRANSPORT: shm (the default), tcp or verbs.
"""

import asyncio
import contextlib
import copy
import ctypes
import datetime
import gc
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
import rkv

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from programs import Server, run  # noqa: E402


TRANSPORT = os.environ.get("RKV_TEST_TRANSPORT", "shm")


@pytest.fixture(name="server", scope="module")
def running_server(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("server")
    server = Server(os.environ["KVSERVER"], str(scratch), "--data-dir", str(scratch / "data"),
                    transport=TRANSPORT)
    yield server
    assert server.stop() == 0


@contextlib.contextmanager
def closing_server(scratch, *arguments):
    """A server of one test. The sockets of the other tests' server are elsewhere."""
    others = os.environ.get("RKV_SHM_DIR")
    server = Server(os.environ["KVSERVER"], str(scratch), *arguments, transport=TRANSPORT, port=7472)
    try:
        yield server
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        if others is not None:
            os.environ["RKV_SHM_DIR"] = others


def load_example():
    spec = importlib.util.spec_from_file_location("kv_block_cache", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


@pytest.fixture(name="client")
def connected_client(server):
    with rkv.Client(server=server.address, transport=TRANSPORT) as client:
        yield client


def test_values_of_every_kind_of_bytes(client):
    version = client.put("text", "grüße")
    assert client.get(b"text") == "grüße".encode()
    assert client.get_with_version("text") == ("grüße".encode(), version)
    array = numpy.arange(1000, dtype=numpy.float32)
    for value in (b"", b"\0\xff" * 9, bytearray(b"array"), memoryview(b"view")[1:], array):
        client.put("value", value)
        assert client.get("value") == bytes(value)
    assert client.get("absent") is None
    assert client.get("absent", 7) == 7
    assert client.get_with_version("absent") is None
    assert client.one_sided_gets > 0
    assert client.transport.startswith(TRANSPORT)


def test_a_value_is_read_into_the_callers_array(client):
    blocks = numpy.random.default_rng(1).integers(0, 255, (4, 1 << 20), dtype=numpy.uint8)
    client.put("block", blocks[2])
    room = numpy.zeros_like(blocks)
    assert client.get_into("block", room[1]) == 1 << 20
    assert (room[1] == blocks[2]).all() and not room[0].any() and not room[2].any()
    with pytest.raises(rkv.TooLarge):
        client.get_into("block", bytearray(10))
    assert client.get_into("absent", room[0]) is None
    with pytest.raises((TypeError, BufferError)):
        client.get_into("block", b"read-only")
    with pytest.raises((ValueError, BufferError)):
        client.get_into("block", room[:, ::2])  # not in one piece


def test_a_value_is_read_into_registered_memory(server, client):
    blocks = numpy.random.default_rng(2).integers(0, 255, (4, 1 << 20), dtype=numpy.uint8)
    keys = [f"registered {i}" for i in range(len(blocks))]
    client.multi_put(zip(keys, blocks))
    memory = client.allocate(blocks.nbytes)
    assert len(memory) == blocks.nbytes and not any(memoryview(memory)[:4096])
    room = numpy.frombuffer(memory, dtype=numpy.uint8).reshape(blocks.shape)
    assert client.get_into(keys[2], room[1]) == 1 << 20
    assert (room[1] == blocks[2]).all() and not room[0].any() and not room[2].any()
    assert client.multi_get_into(keys, room) == [1 << 20] * len(blocks)
    assert (room == blocks).all()
    client.put("short", "value")
    assert client.get_into("short", room[3]) == 5 and bytes(room[3][:5]) == b"value"
    with pytest.raises(rkv.TooLarge):
        client.get_into(keys[0], room[0][:200_000])
    with pytest.raises(rkv.InvalidArgument):
        client.allocate(0)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        client.allocate(-1)
    other = rkv.Client(server=server.address)
    left = numpy.frombuffer(other.allocate(4096), dtype=numpy.uint8)
    assert client.get_into("short", left) == 5  # of another client: as any other memory
    other.close()
    with pytest.raises(ValueError):
        other.allocate(4096)
    del memory
    assert (room == blocks)[:3].all() and not left[5:].any()  # arrays keep the memory

    async def asynchronous():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            own = numpy.frombuffer(loop_client.allocate(blocks.nbytes), dtype=numpy.uint8).reshape(blocks.shape)
            sizes = await asyncio.gather(*(loop_client.get_into(key, each) for key, each in zip(keys, own)))
            assert sizes == [1 << 20] * len(blocks) and (own == blocks).all()
    asyncio.run(asynchronous())


def test_a_key_in_the_memory_for_a_value_is_refused(server, client):
    client.multi_put({"big": b"v" * (1 << 20), "two": b"w" * (1 << 20)})
    for memory in (client.allocate(4 << 20), bytearray(4 << 20)):
        room = numpy.frombuffer(memory, dtype=numpy.uint8)
        room[:3] = list(b"big")
        with pytest.raises(rkv.InvalidArgument, match="the key lies in the memory"):
            client.get_into(room[:3], room)
        with pytest.raises(rkv.InvalidArgument, match="the key lies in the memory"):
            client.multi_get_into(["two", room[:3]], [room[:1 << 20], room[1 << 20:2 << 20]])
        with pytest.raises(rkv.InvalidArgument, match="the same memory"):
            client.multi_get_into(["two", "big"], [room[4:4 + (1 << 20)], room[1 << 20:3 << 20]])
        assert bytes(room[:3]) == b"big" and not room[3:].any()
        assert client.get_into(room[:3], room[3:]) == 1 << 20

    async def asynchronous():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            own = numpy.frombuffer(loop_client.allocate(2 << 20), dtype=numpy.uint8)
            own[:3] = list(b"big")
            with pytest.raises(rkv.InvalidArgument, match="the key lies in the memory"):
                await loop_client.get_into(own[:3], own)
    asyncio.run(asynchronous())


def test_conditions_counters_and_removal(client):
    version = client.put("key", "1")
    with pytest.raises(rkv.Conflict) as refused:
        client.put("key", "2", if_absent=True)
    assert (refused.value.code, refused.value.name, refused.value.may_have_happened) == (4, "conflict", False)
    assert isinstance(refused.value, rkv.Error)
    assert client.put("key", "2", if_version=version) > version
    with pytest.raises(rkv.Conflict):
        client.delete("key", if_version=version)
    assert client.delete("key") is True
    assert client.delete("key") is False
    assert client.incr("n") == 1
    assert client.incr("n", -5) == -4
    assert client.get_counter("n") == -4
    assert client.get_counter("absent") is None
    with pytest.raises(rkv.WrongType):
        client.put("n", "a value")
    assert client.touch("soon", 0.05) is None
    client.put("soon", "gone")
    version = client.touch("soon", datetime.timedelta(hours=1))
    with pytest.raises(rkv.Conflict):
        client.touch("soon", 1, if_version=version + 1)
    version = client.touch("soon", if_version=version)
    assert client.get_with_version("soon") == (b"gone", version)
    client.touch("soon", 0.05)
    end = time.monotonic() + 20
    while client.get("soon") is not None:
        assert time.monotonic() < end


def test_many_keys(client):
    items = {f"many/{i:04}": bytes([i % 256]) * (i % 300) for i in range(1000)}
    versions = client.multi_put(items)
    assert len(set(versions)) == 1000
    keys = list(items)
    assert client.multi_get([*keys, "absent"]) == [*items.values(), None]
    rooms = [bytearray(300) for _ in keys]
    sizes = client.multi_get_into(keys, rooms)
    assert [bytes(room[:size]) for room, size in zip(rooms, sizes)] == list(items.values())
    assert client.multi_get_into(["absent"], [bytearray(1)]) == [None]
    with pytest.raises(rkv.TooLarge):
        client.multi_get_into([keys[299]], [bytearray(3)])
    with pytest.raises(ValueError):
        client.multi_get_into(keys, rooms[1:])
    client.multi_put([("pair", "of two")])
    with pytest.raises(ValueError):
        client.multi_put([("one",)])
    assert client.multi_get([]) == []
    client.flush()
    assert list(client.scan("many/")) == list((k.encode(), v) for k, v in items.items())
    assert next(client.scan("many/", reverse=True, keys_only=True)) == (b"many/0999", b"")


def test_threads_share_a_client(server):
    with rkv.Client(server=server.address, connections=2) as client:
        failed = []

        def work(number):
            try:
                for i in range(200):
                    client.put(f"thread {number}", str(i))
                    assert client.get(f"thread {number}") == str(i).encode()
                    client.incr("all threads")
            except BaseException as error:  # pylint: disable=broad-except
                failed.append(error)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert client.get_counter("all threads") == 1200


def test_wrong_arguments_say_what_is_wrong(server, client):
    with pytest.raises(ValueError, match="a client of Python has one server"):
        rkv.Client(servers="127.0.0.1:7471,127.0.0.1:7472")
    with pytest.raises(ValueError, match="no option 'sever'"):
        rkv.Client(sever="x")
    with pytest.raises(ValueError, match="no zero byte"):
        rkv.Client(secret="one\0two")
    with pytest.raises(ValueError, match="a number of seconds above 0"):
        client.get("key", timeout=-1)
    with pytest.raises(ValueError, match="'memory', 'wal' or 'sync'"):
        client.put("key", "value", durability="disk")
    for wrong in (5, None, ["list"]):
        with pytest.raises(TypeError):
            client.put("key", wrong)
        with pytest.raises(TypeError):
            client.get(wrong)
    with pytest.raises(rkv.InvalidArgument):
        client.get("")
    with pytest.raises(rkv.TooLarge):
        client.put("k" * 1025, "value")
    with pytest.raises(rkv.Error) as refused:
        rkv.Client(server="127.0.0.1:1", transport="shm", repeat_connect=False)
    assert str(refused.value)
    closed = rkv.Client(server=server.address)
    closed.close()
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        closed.get("key")


# Their bytes are pointers: one that is read back would end the interpreter.
def test_arrays_of_objects_are_refused(server, client):
    pairs = numpy.zeros(2, dtype=[("Or", "u1"), ("which", "O")])
    times = numpy.zeros(2, dtype=[("when", "M8[s]"), ("which", "O")])
    arrays = [numpy.empty(2, dtype=object), pairs, times, numpy.zeros((1, 2), dtype=[("inner", pairs.dtype)]),
              memoryview(numpy.empty(2, dtype=object)), (ctypes.py_object * 2)()]
    client.put("plain", b"v" * 16)
    for array in arrays:
        references = sys.getrefcount(array)
        for call in (lambda: client.put("objects", array), lambda: client.multi_put({"objects": array}),
                     lambda: client.get(array), lambda: client.get_into("plain", array),
                     lambda: client.multi_get_into(["plain"], [array])):
            with pytest.raises(TypeError, match="pointers of this process"):
                call()
        assert sys.getrefcount(array) == references
    assert client.get("objects") is None

    async def asynchronous():
        async with rkv.AsyncClient(server=server.address) as loop_client:
            for call in (loop_client.put, loop_client.get_into):
                with pytest.raises(TypeError, match="pointers of this process"):
                    await call("plain", arrays[0])
    asyncio.run(asynchronous())
    for array in (numpy.zeros(2, dtype=[("O", "u1")]), numpy.array(["2026-01-01"], dtype="M8[s]"),
                  numpy.zeros(2, dtype=numpy.float16), numpy.zeros(2, dtype=[("O", "c16", 2)])):
        client.put("value", array)
        assert client.get("value") == array.tobytes()
        room = numpy.ones_like(array)
        assert client.get_into("value", room) == array.nbytes and (room == array).all()


def test_a_buffer_is_pinned_while_it_is_used_and_let_go(client):
    room = bytearray(64)
    client.put("key", room)
    client.get_into("key", room)
    room.extend(b"more")  # BufferError if it were still pinned
    with pytest.raises(rkv.TooLarge):
        client.get_into("key", bytearray(3))
    array = numpy.zeros(8, dtype=numpy.uint8)
    references = sys.getrefcount(array)
    for _ in range(50):
        client.put("key", array)
    gc.collect()
    assert sys.getrefcount(array) == references


def test_asyncio(server):
    async def main():
        async with rkv.AsyncClient(server=server.address) as client:
            await client.put("a", b"1")
            assert await client.get("a") == b"1"
            assert await client.get("absent") is None
            await client.multi_put({f"async/{i}": str(i) for i in range(2000)})
            values = await client.multi_get([f"async/{i}" for i in range(2000)])
            assert values == [str(i).encode() for i in range(2000)]
            room = numpy.zeros(4, dtype=numpy.uint8)
            assert await client.get_into("async/1999", room) == 4
            assert bytes(room) == b"1999"
            assert sorted(await asyncio.gather(*(client.incr("async n") for _ in range(300)))) == \
                list(range(1, 301))
            version = await client.touch("a", 3600)
            assert await client.touch("a", if_version=version) > version
            assert await client.touch("absent", 1) is None
            assert await client.delete("a") is True
            assert await client.delete("a") is False
            with pytest.raises(rkv.Conflict):
                await client.put("async/1", "x", if_absent=True)
            with pytest.raises(rkv.WrongType):
                await client.incr("async/1")
            with pytest.raises(rkv.TooLarge):
                await client.get_into("async/1999", bytearray(1))
            with pytest.raises(TypeError):
                await client.put("key", 5)
            task = asyncio.ensure_future(client.get("a"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            left = client.get("a")
        with pytest.raises(rkv.Disconnected):
            await left
        with pytest.raises(ValueError, match="closed"):
            await client.get("a")
    asyncio.run(main())


def test_the_loop_sleeps_and_other_tasks_run(server):
    async def main():
        async with rkv.AsyncClient(server=server.address, polling="event") as client:
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.001)
                    ticks += 1
            ticker = asyncio.ensure_future(tick())
            for i in range(20):
                assert await client.incr("slow") == i + 1
                await asyncio.sleep(0.01)
            ticker.cancel()
            assert ticks > 20
            # A loop that spins uses its processor all the time, whatever the processor is.
            used, began = time.process_time(), time.monotonic()
            await asyncio.sleep(0.5)
            assert time.process_time() - used < 0.5 * (time.monotonic() - began), "the loop spins"
    asyncio.run(main())


EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "client", "python", "examples",
                       "kv_block_cache.py")


def run_example(server, *arguments):
    return run(sys.executable, EXAMPLE, *arguments, server.address)


def test_the_cache_of_kv_blocks(tmp_path):
    with closing_server(tmp_path, "--memory", "512MiB") as server:
        for size in ("64", "256", "1024", "4096"):  # KiB
            for arguments, found in (((), (0, 6, 6)), (("--ttl", "3600"), (8, 8, 8))):
                told = run_example(server, "--block-kib", size, *arguments)
                assert told == "".join(
                    f"prompt {number}: {there} of 8 blocks cached, all of them equal afterwards\n"
                    for number, there in enumerate(found)) + f"hit rate: {(sum(found) + 24) / 48:.2f}\n"
    ended = subprocess.run([sys.executable, EXAMPLE, "127.0.0.1:1"], check=False, capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stderr.startswith("connect: ") and not ended.stdout
    for wrong in ("nan", "0", "-1", "inf", "1e9", "x"):
        ended = subprocess.run([sys.executable, EXAMPLE, "--ttl", wrong], check=False, capture_output=True, text=True)
        assert ended.returncode == 2 and "--ttl" in ended.stderr, wrong


def records(server):
    with rkv.Client(server=server.address, transport=TRANSPORT) as client:
        return json.loads(client.server_stats())["records"]


def test_blocks_of_the_cache_expire(tmp_path):
    with closing_server(tmp_path, "--memory", "64MiB") as server:
        run_example(server, "--ttl", "1e6")
        assert records(server) == 12
        with rkv.Client(server=server.address, transport=TRANSPORT) as client:
            cache = load_example().BlockCache(client, "one that is short-lived", ttl=0.5)
            tokens, pages = list(range(80)), numpy.ones((5, 1000), dtype=numpy.float16)
            assert cache.store(tokens, pages) and cache.stored == 5
            end = time.monotonic() + 30
            while cache.cached_blocks(tokens, numpy.zeros_like(pages)) != 0 or records(server) != 12:
                assert time.monotonic() < end, "blocks do not expire"
                time.sleep(0.02)


def test_a_full_store_does_not_end_the_cache(tmp_path):
    with closing_server(tmp_path, "--memory", "24MiB") as server:
        told = run_example(server, "--block-kib", "1024", "--prompts", "20", "--ttl", "3600")
        assert "NOT equal" not in told and told.count(" blocks cached, ") == 20
        assert re.search(r"the store is full: [1-9]\d* blocks were stored and [1-9]\d* dropped\n$", told), told


def test_a_store_that_evicts_takes_every_block(tmp_path):
    with closing_server(tmp_path, "--memory", "24MiB", "--evict") as server:
        told = run_example(server, "--block-kib", "1024", "--prompts", "20")
        assert "NOT equal" not in told and told.count(" blocks cached, ") == 20
        assert "the store is full" not in told
        with rkv.Client(server=server.address, transport=TRANSPORT) as client:
            assert json.loads(client.server_stats())["evicted_records"] > 20


# The store has place again when blocks have expired. A slow machine needs a longer time to fill it.
def test_a_cache_goes_on_when_blocks_have_expired(tmp_path):
    with closing_server(tmp_path, "--memory", "24MiB") as server, \
            rkv.Client(server=server.address, transport=TRANSPORT) as client:
        pages = numpy.ones((2, 1 << 19), dtype=numpy.float16)
        for ttl in (1, 4, 16, 64):
            cache = load_example().BlockCache(client, f"of {ttl} s", ttl=ttl)
            taken = [cache.store([number] * 32, pages) for number in range(30)]
            if not all(taken):
                break
        assert cache.stored > 0 and cache.dropped == 2 * taken.count(False) > 0
        end = time.monotonic() + 120
        while not cache.store([77] * 32, pages):
            assert time.monotonic() < end, "the store stays full"
            time.sleep(0.05)
        assert cache.cached_blocks([77] * 32, numpy.zeros_like(pages)) == 2


def test_what_was_written_of_many_is_not_denied(server, client):
    items = [("many 1", "1"), ("k" * 2000, "v"), ("many 2", "2")]
    with pytest.raises(rkv.TooLarge) as refused:
        client.multi_put(items)
    assert refused.value.may_have_happened and client.get("many 2") == b"2"

    async def main():
        async with rkv.AsyncClient(server=server.address) as async_client:
            with pytest.raises(rkv.TooLarge) as refused_too:
                await async_client.multi_put(items)
            assert refused_too.value.may_have_happened
            assert async_client.in_flight() == 0
    asyncio.run(main())


def test_a_client_that_was_not_made_is_harmless():
    class Own(rkv.Client):
        def __del__(self):
            self.close()
    with pytest.raises(rkv.Error):
        Own(server="127.0.0.1:1", transport="shm", repeat_connect=False)
    gc.collect()
    with pytest.raises(AttributeError):
        rkv.Client.__new__(rkv.Client).get("key")


# Of an object of the extension that has nothing inside any use would end the interpreter.
def test_no_object_of_the_extension_is_empty(server, client):
    import rkv._rkv as extension
    made = {type(client.allocate(16)), type(client._core)}

    async def asynchronous():
        core = extension.connect_async(server=server.address)
        made.update({type(core), type(core.get("key", lambda *_: None))})
        core.close()
    asyncio.run(asynchronous())
    classes = {each for each in vars(extension).values()
               if isinstance(each, type) and not issubclass(each, Exception)}
    assert made == classes and rkv.RegisteredMemory in classes
    for each in classes:
        class Derived(each):
            pass

        class New(each):
            def __new__(cls):
                return object.__new__(cls)
        for make in (each, Derived, New, lambda: each.__new__(each), lambda: object.__new__(each),
                     lambda: each.__mro__[1].__new__(each), lambda: each.__new__(Derived)):
            with pytest.raises(TypeError):
                make()
    for of in (client.allocate(16), client._core):
        with pytest.raises(TypeError):
            copy.copy(of)
    assert len(client.allocate(16)) == 16


# A server that is stopped is left after 2 s, which the log tells.
LOGGING = """
import asyncio, logging, os, signal, sys, threading, time, rkv
server, process, transport, how = sys.argv[1:]
seen = threading.Event()

class Handler(logging.Handler):
    def emit(self, record):
        seen.set()
        if how == "slow":
            time.sleep(0.5)  # the program ends meanwhile
        print(record.name, record.levelname, record.getMessage().partition(": ")[2], flush=True)
        if how == "raises":
            raise ValueError("of the handler")

class Quiet(logging.Logger):
    def isEnabledFor(self, level):
        seen.set()
        return False
log = logging.getLogger("rkv")
log.addHandler(Handler())
if how == "silent":
    log.__class__ = Quiet

async def main():
    client = rkv.AsyncClient(server=server, transport=transport)
    await client.put("key", "value")
    os.kill(int(process), signal.SIGSTOP)
    end = time.monotonic() + 60
    while not seen.is_set():  # a put that is not sent in its time leaves nobody waiting for an answer
        assert time.monotonic() < end
        try:
            await client.put("key", "value", timeout=0.2)
        except rkv.Error:
            pass
    os.kill(int(process), signal.SIGCONT)
    client.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["normal", "silent", "raises", "slow"])
def test_the_library_logs_to_the_logger_rkv(tmp_path, how):
    with closing_server(tmp_path) as server:
        try:
            ended = subprocess.run(
                [sys.executable, "-c", LOGGING, server.address, str(server.process.pid), TRANSPORT, how],
                check=False, capture_output=True, text=True, timeout=120)
        finally:
            server.process.send_signal(signal.SIGCONT)
    assert ended.returncode == 0, ended.stderr
    line = "rkv WARNING it has not answered for 2 s; disconnecting\n"
    assert ended.stdout == ("" if how == "silent" else line)
    if how == "raises":
        assert "ValueError: of the handler" in ended.stderr
    else:
        assert not ended.stderr


def test_an_asynchronous_client_belongs_to_its_thread(server):
    async def main():
        async with rkv.AsyncClient(server=server.address) as client:
            def elsewhere():
                for call in (client.close, lambda: client.get("key")):
                    with pytest.raises(RuntimeError, match="its event loop"):
                        call()
                return True
            assert await asyncio.get_running_loop().run_in_executor(None, elsewhere)
            pending = client.get("key")
            pending.cancel()
            await asyncio.sleep(0)
            assert client.in_flight() == 0
    asyncio.run(main())


def test_the_interpreter_ends_under_threads_that_use_a_client(server):
    program = ("import rkv, sys, threading, time\n"
               "client = rkv.Client(server=sys.argv[1])\n"
               "client.put('key', 'value')\n"
               "def work():\n"
               "    while True: client.get('key')\n"
               "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
               "time.sleep(0.1)\n")
    for _ in range(3):
        assert run(sys.executable, "-c", program, server.address) == ""
