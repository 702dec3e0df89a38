#!/usr/bin/env python3
"""Reads common/LAYOUT.md's examples as a client in another language would: from the key to its value.

golden_test.cc compares the same examples with what the server's code makes. A reader of your own
that agrees with this one computes rightly; what is left to get wrong is RDMA.
"""

import ctypes
import re
import struct
import sys

XXHASH = ctypes.CDLL("libxxhash.so.0")  # the package xxhash has it as xxh3_64_intdigest()
XXHASH.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
XXHASH.XXH3_64bits_withSeed.restype = ctypes.c_uint64

EPOCH, HASH_SEED = 0x1122334455667788, 0x0102030405060708
MASK = (1 << 64) - 1
LIVE, SUPERSEDED, PREPARED = 0, 0x9C5A36E1B7D2480F, 0x63A7C91E482DB5F0


def examples(page):
    """The bytes of each example of hexadecimal lines, by its name."""
    found = {}
    for name, body in re.findall(r"```example (\S+)\n(.*?)```", page, re.S):
        lines = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)$", body, re.M)
        found[name] = bytes.fromhex("".join(lines)) if lines else body
    return found


def xxh3(data, seed):
    return XXHASH.XXH3_64bits_withSeed(data, len(data), seed)


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def checksum(data, place):
    return xxh3(data, EPOCH) ^ mix64(place)


def line(data, offset, fields):
    """The fields of a line of the root region, or of an entry of the extent table."""
    assert struct.unpack("<Q", data[-8:])[0] == checksum(data[:-8], offset), "a line does not verify"
    return struct.unpack_from(fields, data)


def record(data, location):
    """(state, version, lengths, key, value) of a record whose value is not large."""
    word, version, lengths = struct.unpack_from("<QQQ", data)
    head = 24 + (8 if lengths >> 11 & 1 else 0)
    key_end = head + (lengths & 0x7FF)
    end = key_end + (lengths >> 32)
    state = word ^ checksum(data[8:end], location)
    assert state in (LIVE, SUPERSEDED, PREPARED), "a record does not verify"
    return state, version, lengths, data[head:key_end], data[key_end:end]


def get(key, read):
    """The value, by the steps of LAYOUT.md, "Reading a key". read(name) is a READ."""
    magic, version, extents, epoch = line(read("identity"), 0, "<QIIQ")
    assert (magic, version, epoch) == (0x31544F4F52564B52, 1, EPOCH)
    address, _, depth, algorithm, groups, seed = line(read("directory-line"), 128, "<8xQIBBHQ")
    assert algorithm == 1 and seed == HASH_SEED
    hashed = xxh3(key, seed)
    number = hashed >> (64 - depth) if depth else 0
    entry = struct.unpack("<Q", read("directory"))[0]
    assert entry & 0x7FF == mix64(entry & ~0x7FF ^ EPOCH) & 0x7FF, "no entry of this epoch"
    extent, segment = entry >> 48, entry >> 16 & 0xFFFFFFFF
    group = segment * groups + (hashed >> 25) % groups
    start, _, units, ident, kind = line(read("index-extent"), 4096 + 32 * extent, "<QIIII")
    assert (ident, kind) == (extent, 1) and extent < extents and (group + 1) * 8 <= units
    data = read("group").ljust(256, b"\0")
    word, header = struct.unpack_from("<QQ", data)
    assert word == checksum(data[8:], extent << 32 | group), "the group does not verify"
    covered = header >> 31 & 31
    assert (hashed >> 37 ^ header >> 4 & 0x7FFFFFF) >> (27 - covered) == 0, "not the key's group"
    way = [(number, address + 8 * number), (group, start + 256 * group)]
    for slot in struct.unpack_from("<30Q", data, 16):
        if slot == 0 or slot >> 48 != hashed & 0xFFFF:
            continue
        units, extent, unit = slot >> 36 & 0xFFF, slot >> 24 & 0xFFF, slot & 0xFFFFFF
        start, _, room, ident, kind = line(read("extent"), 4096 + 32 * extent, "<QIIII")
        assert (ident, kind) == (extent, 2) and unit + units <= room
        state, _, lengths, found, value = record(read("record")[:32 * units], slot & 0xFFFFFFFFF)
        if found == key and state == LIVE and not lengths >> 14 & 1:
            return value, way + [(unit, start + 32 * unit)]
    return None, way


def main(path):
    with open(path, encoding="utf-8") as page:
        found = examples(page.read())
    value, way = get(b"apple", found.__getitem__)
    assert value == b"a round fruit", value
    for (number, address), text in zip(way, found["chain"].splitlines(), strict=True):
        assert f" {number} " in text.replace(",", " ") and f"at {address:#x}" in text, (text, number)
    state, _, lengths, key, value = record(found["cell-record"], 2 << 24 | 5)
    assert (state, key, struct.unpack("<qII", value)) == (LIVE, b"hits", (7, 3, 0))
    assert lengths >> 14 & 1, "a reader must see that the number is in a cell"
    for name in ("identity", "directory-line", "index-extent", "extent", "group", "record"):
        for at in range(0, len(found[name]), 7):  # one bit wrong anywhere is seen
            wrong = bytearray(found[name])
            wrong[at] ^= 1 << at % 8
            changed = {**found, name: bytes(wrong)}
            try:
                value, _ = get(b"apple", changed.__getitem__)
            except AssertionError:
                continue
            padding = name == "record" and at >= 24 + 5 + 13
            assert value is None or padding, f"{name}: byte {at} may be anything"


if __name__ == "__main__":
    main(sys.argv[1])
