"""rkv.Client: the client of the extension, with what is nicer in Python."""

import atexit
import logging  # before at_exit is registered: its handlers are closed later
import os
import threading
import weakref

from rkv import _rkv

_rkv.log_to(logging.getLogger("rkv"))
atexit.register(_rkv.at_exit)

_clients = weakref.WeakSet()  # that are open


def _leave_parent():
    for client in list(_clients):
        client._leave_parent()


os.register_at_fork(after_in_child=_leave_parent)


class Client:
    """A connection, or several, to a kvserver, for any number of threads.

    Client(server="HOST:PORT", connections=1, timeout=5.0, user=..., secret=..., transport="auto", ...):
    the options of rkv_options_set() in rkv/c.h, with underscores. Raises rkv.Error if there is no
    connection within the time-out. Without one a method has no `_core`: AttributeError.

    A forked child that inherits it opens connections of its own at its first call, which raises rkv.Error
    if there are none."""

    def __init__(self, **options):
        self._core = _rkv.connect(**options)
        self._options = options
        self._opens = threading.Lock()
        _clients.add(self)

    def _leave_parent(self):
        self._opens = threading.Lock()
        if "_core" in self.__dict__:
            self._parents = self.__dict__.pop("_core")

    def __getattr__(self, name):
        if name != "_core" or "_options" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._opens:
            if "_core" not in self.__dict__:
                self._core = _rkv.connect(**self._options)
        return self.__dict__["_core"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Waits for the calls of other threads. Later ones raise ValueError."""
        if "_options" not in self.__dict__:
            return
        _clients.discard(self)
        with self._opens:
            if "_core" not in self.__dict__:
                self._core = self._parents
        self._core.close()

    def get(self, key, default=None, *, timeout=None):
        """The value as bytes, or `default`."""
        return self._core.get(key, default, timeout=timeout)

    def get_with_version(self, key, *, timeout=None):
        """(value, version); None: there is no such key."""
        return self._core.get_with_version(key, timeout=timeout)

    def get_into(self, key, buffer, *, timeout=None):
        """Copies the value to the buffer. Its length; None: there is no such key. rkv.TooLarge, whose `needed`
        is the value's length. rkv.InvalidArgument: the key lies in the buffer."""
        return self._core.get_into(key, buffer, timeout=timeout)

    def allocate(self, size):
        """Registered memory of so many bytes, zeroed: an rkv.RegisteredMemory, which numpy.frombuffer() and
        memoryview() take. get_into() and multi_get_into() READ values longer than 128 KiB straight into
        it, at any place. Such a call may end later than its time-out: when its READs have landed, or
        nothing has come over the connection for 2 s. The memory may outlive the client."""
        return self._core.allocate(size)

    def put(self, key, value, **options):
        """The version of the write. ttl: seconds; if_absent, if_version: else rkv.Conflict; durability:
        "memory", "wal" or "sync"; timeout."""
        return self._core.put(key, value, **options)

    def touch(self, key, ttl=None, **options):
        """Sets the time to live to ttl seconds from now on; without ttl the key does not expire any more. The
        value stays and is not sent. Returns the new version, or None: the key does not exist. if_version,
        else rkv.Conflict; durability, timeout."""
        return self._core.touch(key, ttl, **options)

    def delete(self, key, **options):
        """Whether there was such a key. if_version, durability, timeout."""
        return self._core.delete(key, **options)

    def incr(self, key, by=1, **options):
        """The counter's number after it. durability, timeout."""
        return self._core.incr(key, by, **options)

    def get_counter(self, key, *, timeout=None):
        """Its number; None: there is no such key."""
        return self._core.get_counter(key, timeout=timeout)

    def multi_get(self, keys, *, timeout=None):
        """A list of values, None where there is no such key. If a key has failed, raises the first error
        when all have ended. Its `results` is the list, with each error in its key's place."""
        return self._core.multi_get(keys, timeout=timeout)

    def multi_get_into(self, keys, buffers, *, timeout=None):
        """Copies each value to the buffer of its place. A list of lengths, None where there is no such
        key. rkv.InvalidArgument: two buffers overlap, or a key lies in a buffer. Raises as multi_get()."""
        return self._core.multi_get_into(keys, buffers, timeout=timeout)

    def multi_put(self, items, **options):
        """Versions of the writes of pairs, or of a dict. Raises as multi_get(); may_have_happened of what is
        raised: one of the writes was made, or may have been. ttl: seconds; durability, timeout."""
        return self._core.multi_put(items, **options)

    def scan(self, prefix=b"", start=b"", end=b"", *, reverse=False, keys_only=False, timeout=None):
        """Yields (key, value) in byte order, a page at a time. A page is of one instant. Needs a server
        with a disk, else rkv.Unsupported."""
        token = b""
        while True:
            entries, token = self._core.scan_page(prefix, start, end, reverse, keys_only, 0, token, timeout)
            yield from entries
            if not token:
                return

    def ping(self, *, timeout=None):
        self._core.ping(timeout=timeout)

    def flush(self, *, timeout=None):
        """All that was acknowledged before is on disk, up to the version returned."""
        return self._core.flush(timeout=timeout)

    def server_stats(self, *, timeout=None):
        """A JSON object, as text."""
        return self._core.server_stats(timeout=timeout)

    @property
    def one_sided_gets(self):
        """How many GETs the server's processor took no part in."""
        return self._core.one_sided_gets

    @property
    def transport(self):
        """The transport, and why it was chosen."""
        return self._core.transport
