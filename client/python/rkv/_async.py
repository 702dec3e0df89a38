"""rkv.AsyncClient: the asynchronous client on asyncio."""

import asyncio

from rkv import _rkv


class AsyncClient:
    """As rkv.Client, to be awaited. It is made in a running event loop, and belongs to it; the
    constructor blocks until there is a connection. Thousands of operations may be in flight: what is
    awaited together (asyncio.gather) leaves together.

    Cancelling a task withdraws its operation; a write that was sent may have happened. A key, a value
    or a buffer must not be changed before the operation has ended: a cancelled one ends with the next
    turn of the loop."""

    def __init__(self, **options):
        self._loop = asyncio.get_running_loop()
        self._core = _rkv.AsyncCore(**options)
        self._polls = False  # _poll is to be called by the loop
        self._loop.add_reader(self._core.descriptor(), self._poll)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()

    @property
    def transport(self):
        return self._core.transport

    def close(self):
        """Ends what is in flight with rkv.Disconnected."""
        if self._core is None:
            return
        self._loop.remove_reader(self._core.descriptor())
        self._core.close()
        self._core = None

    def get(self, key, *, timeout=None):
        """The value as bytes; None: there is no such key."""
        return self._begin(lambda core, done: core.get(key, done, timeout=timeout))

    def get_into(self, key, buffer, *, timeout=None):
        """Copies the value to the buffer. Its length; None: there is no such key."""
        return self._begin(lambda core, done: core.get_into(key, buffer, done, timeout=timeout))

    def put(self, key, value, **options):
        """The version of the write. Options as those of rkv.Client.put()."""
        return self._begin(lambda core, done: core.put(key, value, done, **options))

    def delete(self, key, **options):
        """Whether there was such a key."""
        return self._begin(lambda core, done: core.delete(key, done, **options))

    def incr(self, key, by=1, **options):
        """The counter's number after it."""
        return self._begin(lambda core, done: core.incr(key, by, done, **options))

    async def multi_get(self, keys, *, timeout=None):
        return await asyncio.gather(*(self.get(key, timeout=timeout) for key in keys))

    async def multi_put(self, items, **options):
        pairs = items.items() if isinstance(items, dict) else items
        return await asyncio.gather(*(self.put(key, value, **options) for key, value in pairs))

    def _begin(self, submit):
        if self._core is None:
            raise ValueError("the client is closed")
        future = self._loop.create_future()

        def done(result, error):
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        stop = submit(self._core, done)
        future.add_done_callback(lambda ended: self._withdraw(stop) if ended.cancelled() else None)
        self._poll_soon()
        return future

    def _withdraw(self, stop):
        stop.request()
        self._poll_soon()

    def _poll_soon(self):
        if not self._polls and self._core is not None:
            self._polls = True
            self._loop.call_soon(self._poll)

    def _poll(self):
        self._polls = False
        if self._core is None:
            return
        self._core.poll()
        if self._core is not None and not self._core.arm():
            self._poll_soon()
