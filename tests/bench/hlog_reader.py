#!/usr/bin/env python3
"""Reads histogram logs of format 1.3, written from the published format and from nothing of kvbench:
prints for each line `start length max count p50 p99 highest`. Exit status 1: no such log."""

import base64
import struct
import sys
import zlib


def counts_of(encoded):
    """(value, count) pairs of a V2 histogram of three significant digits, in base64."""
    raw = base64.b64decode(encoded, validate=True)
    cookie, length = struct.unpack_from(">II", raw)
    assert cookie == 0x1C849314 and length == len(raw) - 8, "not a compressed V2 histogram"
    plain = zlib.decompress(raw[8:])
    cookie, length, offset, digits, lowest, highest, ratio = struct.unpack_from(">Iiiiqqd", plain)
    assert cookie == 0x1C849313 and offset == 0 and digits == 3 and lowest == 1 and ratio == 1.0
    assert length == len(plain) - 40 and highest >= 2
    at, index = 40, 0
    while at < len(plain):
        number, shift = 0, 0
        while True:
            byte = plain[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        count = (number >> 1) ^ -(number & 1)
        if count < 0:
            index += -count
            continue
        if count:
            yield highest_of(index), count
        index += 1


def highest_of(index):
    """The highest value counted at an index: 2048 values singly, then 1024 for each power of two."""
    if index < 2048:
        return index
    bucket = index // 1024 - 1
    return ((index % 1024 + 1024 + 1) << bucket) - 1


def percentile(pairs, total, percent):
    wanted, seen = max(1, -(-total * percent // 100)), 0
    for value, count in pairs:
        seen += count
        if seen >= wanted:
            return value
    return 0


def main():
    lines = open(sys.argv[1], encoding="ascii").read().splitlines()
    assert "#[Histogram log format version 1.3]" in lines, "no histogram log of format 1.3"
    for line in lines:
        if line.startswith("#") or line.startswith('"'):
            continue
        start, length, most, encoded = line.split(",")
        pairs = list(counts_of(encoded))
        total = sum(count for _, count in pairs)
        print(float(start), float(length), float(most), total, percentile(pairs, total, 50),
              percentile(pairs, total, 99), pairs[-1][0] if pairs else 0)


if __name__ == "__main__":
    try:
        main()
    except AssertionError as wrong:
        sys.exit(f"hlog_reader: {wrong}")
