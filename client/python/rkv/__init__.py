"""The client of rkv, a key-value store with one-sided RDMA reads.

    import rkv

    with rkv.Client(server="10.0.0.1:7471") as client:
        client.put("name", "value")          # the version of the write
        client.get("name")                   # b"value"; None: there is no such key

    async with rkv.AsyncClient(server="10.0.0.1:7471") as client:
        await client.put("name", b"value")

Keys and values are bytes, or anything with a buffer (bytearray, memoryview, numpy arrays), which Python
does not copy; a str is its UTF-8. get_into() and multi_get_into() read into a buffer
of the caller. Times are seconds, or a timedelta. A failed operation raises an rkv.Error, whose class says
the code.

What the library logs goes to the logger "rkv" of the module logging. It logs only what no result can
report, such as that a server was left because it sent garbage.

A Client may be used by any number of threads at once; calls do not hold the interpreter's lock while
they wait. An AsyncClient belongs to the event loop it was made in. In a forked child a Client opens
connections of its own, an AsyncClient is closed, and registered memory of the parent is refused.
"""

from rkv._rkv import (Busy, Cancelled, Conflict, Corrupt, Disconnected, Error, Internal, InvalidArgument,
                      IoError, NoDevice, NotFound, NotPrimary, OutOfMemory, OutOfRange, PermissionDenied,
                      RegisteredMemory, Rejected, Stale, Timeout, TooLarge, Unauthenticated, Unreachable, Unsupported,
                      ValueChanged, VersionMismatch, WrongType)
from rkv._async import AsyncClient
from rkv._client import Client

__all__ = ["AsyncClient", "Busy", "Cancelled", "Client", "Conflict", "Corrupt", "Disconnected", "Error",
           "Internal", "InvalidArgument", "IoError", "NoDevice", "NotFound", "NotPrimary", "OutOfMemory",
           "OutOfRange", "PermissionDenied", "RegisteredMemory", "Rejected", "Stale", "Timeout", "TooLarge", "Unauthenticated",
           "Unreachable", "Unsupported", "ValueChanged", "VersionMismatch", "WrongType"]
