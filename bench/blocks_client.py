#!/usr/bin/env python3
"""One store as a cache of KV blocks: puts batches of blocks from a numpy array, reads them into another
one, and prints a JSON object with MiB/s; of rkv also into registered memory. bench/blocks.py starts it.

    blocks_client.py rkv|redis HOST:PORT TRANSPORT BLOCK_BYTES BLOCKS BATCH REPETITIONS"""

import json
import math
import sys
import time

import numpy


class Rkv:
    def __init__(self, address, transport):
        import rkv  # pylint: disable=import-outside-toplevel
        self.client = rkv.Client(server=address, transport=transport, large="64MiB")

    def registered(self, shape):
        """An array that long values are READ into without a copy."""
        return numpy.frombuffer(self.client.allocate(math.prod(shape)), dtype=numpy.uint8).reshape(shape)

    def put(self, keys, blocks):
        self.client.multi_put(zip(keys, blocks))

    def get(self, keys, blocks):
        if None in self.client.multi_get_into(keys, blocks):
            sys.exit("a block is missing")


class Redis:
    def __init__(self, address, _transport):
        import redis  # pylint: disable=import-outside-toplevel
        host, _, port = address.rpartition(":")
        self.client = redis.Redis(host, int(port))

    def put(self, keys, blocks):
        with self.client.pipeline(transaction=False) as pipe:
            for key, block in zip(keys, blocks):
                pipe.set(key, block.tobytes())
            pipe.execute()

    def get(self, keys, blocks):
        for block, value in zip(blocks, self.client.mget(keys)):
            block[:] = numpy.frombuffer(value, dtype=numpy.uint8)


def main():
    store, address, transport = sys.argv[1:4]
    size, count, batch, repetitions = map(int, sys.argv[4:])
    stored = numpy.random.default_rng(1).integers(0, 255, (count, size), dtype=numpy.uint8)
    room = numpy.zeros_like(stored)
    keys = [b"kv/%013d" % i for i in range(count)]
    client = {"rkv": Rkv, "redis": Redis}[store](address, transport)

    def mib_per_s(operate, blocks):
        begin = time.perf_counter()
        for i in range(0, count, batch):
            operate(keys[i:i + batch], blocks[i:i + batch])
        return count * size / (time.perf_counter() - begin) / 2**20
    mib_per_s(client.put, stored)  # makes room
    mib_per_s(client.get, room)
    if not (room == stored).all():
        sys.exit("a block differs")
    kinds = {"put": (client.put, stored), "get": (client.get, room)}
    if store == "rkv":
        kinds["registered get"] = (client.get, client.registered(stored.shape))
    rates = {kind: [] for kind in kinds}
    for _ in range(repetitions):
        for kind, operation in kinds.items():
            rates[kind].append(mib_per_s(*operation))
    if not all((blocks == stored).all() for _, blocks in kinds.values()):
        sys.exit("a block differs")
    print(json.dumps({kind: sorted(each)[repetitions // 2] for kind, each in rates.items()}))


if __name__ == "__main__":
    main()
