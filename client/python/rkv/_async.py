"""rkv.AsyncClient: the asynchronous client on asyncio."""

import asyncio
import copy
import os
import threading
import weakref

from rkv import _rkv

_clients = weakref.WeakSet()


def _leave_parent():
    for client in list(_clients):
        client._core = None
        client._gone = "the client was made before fork(): make one in an event loop of the child"


os.register_at_fork(after_in_child=_leave_parent)


class AsyncClient:
    """Operations of rkv.Client. It is made in a running event loop, and belongs to its thread; the
    constructor blocks until there is a connection. Each operation but multi_get() and multi_put() begins
    when it is called, and returns an asyncio.Future, to be awaited. (asyncio.create_task() and
    TaskGroup.create_task() take coroutines alone: put a future into gather() or wait(), or await it in a
    coroutine of your own.) Thousands may be in flight: what is begun together leaves together. Close the
    client, or use `async with`: the event loop keeps it alive.

    Cancelling a task withdraws its operation; a write that was sent may have happened. A key, a value
    or a buffer must not be changed before the operation has ended, and in_flight() is lower then.

    In a forked child it is closed: the event loop is the parent's."""

    def __init__(self, **options):
        self._core = None
        self._gone = "the client is closed"
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._core = _rkv.connect_async(**options)
        self._polls = False  # _poll is to be called by the loop
        self._loop.add_reader(self._core.descriptor(), self._poll)
        _clients.add(self)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()

    @property
    def transport(self):
        return self._core.transport

    def close(self):
        """Ends what is in flight with rkv.Disconnected. Blocks the event loop until nothing can be written
        to the buffers of get_into() any more: for up to a second, if values are being READ into registered
        memory and the server does not answer."""
        if self._core is None:
            return
        self._check_thread()
        self._loop.remove_reader(self._core.descriptor())
        core, self._core = self._core, None
        if not core.close():  # a signal's handler, amid a callback of the client
            self._loop.call_soon(core.close)

    def in_flight(self):
        """Operations that have not ended, cancelled ones included."""
        return 0 if self._core is None else self._core.in_flight()

    def get(self, key, *, timeout=None):
        """The value as bytes; None: there is no such key."""
        return self._begin(lambda core, done: core.get(key, done, timeout=timeout))

    def get_into(self, key, buffer, *, timeout=None):
        """Copies the value to the buffer. Its length; None: there is no such key. rkv.TooLarge, whose `needed`
        is the value's length. rkv.InvalidArgument: the key lies in the buffer. Operations in flight together need buffers that overlap neither each other
        nor a key: nobody notices, and their content is undefined."""
        return self._begin(lambda core, done: core.get_into(key, buffer, done, timeout=timeout))

    def allocate(self, size):
        """Registered memory, as rkv.Client.allocate(), for get_into(). After a get_into() that was cancelled
        or has timed out it is written to until in_flight() is lower."""
        if self._core is None:
            raise ValueError(self._gone)
        return self._core.allocate(size)

    def put(self, key, value, **options):
        """The version of the write. Options as those of rkv.Client.put()."""
        return self._begin(lambda core, done: core.put(key, value, done, **options))

    def touch(self, key, ttl=None, **options):
        """The version of the key; None: the key does not exist. As rkv.Client.touch()."""
        return self._begin(lambda core, done: core.touch(key, done, ttl, **options))

    def delete(self, key, **options):
        """Whether there was such a key."""
        return self._begin(lambda core, done: core.delete(key, done, **options))

    def incr(self, key, by=1, **options):
        """The counter's number after it."""
        return self._begin(lambda core, done: core.incr(key, by, done, **options))

    async def multi_get(self, keys, *, timeout=None):
        """A list of values, None where there is no such key. Raises as rkv.Client.multi_get()."""
        _rkv.check_many(keys)
        return await _all(lambda key: self.get(key, timeout=timeout), keys)

    async def multi_put(self, items, **options):
        """Versions of the writes of pairs, or of a dict. Raises as rkv.Client.multi_put()."""
        pairs = [_pair(each) for each in (items.items() if isinstance(items, dict) else items)]
        return await _all(lambda pair: self.put(*pair, **options), pairs, writes=True)

    def _check_thread(self):
        if threading.get_ident() != self._thread:
            raise RuntimeError("an AsyncClient is used by the thread of its event loop alone")

    def _begin(self, submit):
        if self._core is None:
            raise ValueError(self._gone)
        self._check_thread()
        future = self._loop.create_future()

        def done(result, error):
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        stop = submit(self._core, done)
        client = weakref.ref(self)

        def withdraw(ended):
            if ended.cancelled():
                stop.request()
                if client() is not None:
                    client()._poll_soon()
        future.add_done_callback(withdraw)
        self._poll_soon()
        return future

    def _poll_soon(self):
        if not self._polls and self._core is not None:
            self._polls = True
            self._loop.call_soon(self._poll)

    def _poll(self):
        self._polls = False
        if self._core is None:
            return
        try:
            self._core.poll()
        finally:  # it raises what a callback has raised: the others go on
            if self._core is not None and not self._core.arm():
                self._poll_soon()


def _pair(item):
    if isinstance(item, (str, bytes)) or len(item) != 2:
        raise ValueError("an item is a pair of key and value")
    return item


async def _all(begin, arguments, writes=False):
    """The results of begin() of each. If any has failed, a copy of the first exception is raised, with all
    of them in `results`."""
    futures = []
    try:
        for each in arguments:
            futures.append(begin(each))
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    ended = await asyncio.gather(*futures, return_exceptions=True)
    failed = next((each for each in ended if isinstance(each, BaseException)), None)
    if failed is None:
        return ended
    if not isinstance(failed, _rkv.Error):
        raise failed
    first = copy.copy(failed)
    first.results = ended
    if writes:
        first.may_have_happened = any(not isinstance(each, _rkv.Error) or each.may_have_happened
                                      for each in ended)
    raise first
