"""rkv.Client: the client of the extension, with what is nicer in Python."""

from rkv import _rkv


class Client(_rkv.Client):
    """A connection, or several, to a kvserver.

    Client(server="HOST:PORT", connections=1, timeout=5.0, user=..., secret=..., transport="auto", ...):
    the options of rkv_options_set() in rkv/c.h, with underscores. Raises rkv.Error if there is no
    connection within the time-out."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def scan(self, prefix=b"", start=b"", end=b"", *, reverse=False, keys_only=False, timeout=None):
        """Yields (key, value) in byte order, a page at a time. A page is of one instant. Needs a server
        with a disk, else rkv.Unsupported."""
        token = b""
        while True:
            entries, token = self._scan_page(prefix, start, end, reverse, keys_only, 0, token, timeout)
            yield from entries
            if not token:
                return
