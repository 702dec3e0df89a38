#!/usr/bin/env python3
"""One store as a full cache of KV blocks: prompts come at random, some more often than others; what is
found of a prompt's blocks is read, the rest is put. Prints a JSON object. bench/cache.py starts it.

    cache_client.py rkv|redis HOST:PORT TRANSPORT BLOCK_BYTES BLOCKS PROMPTS REQUESTS SEED
    cache_client.py lru ROOM "" ...     an exact LRU with room for so many blocks, computed
"""

import collections
import json
import sys
import time

import blocks_client
import numpy


SAMPLED = 16  # requests between two looks at how many blocks are there


class Rkv(blocks_client.Rkv):
    def found(self, keys, blocks):
        return [size is not None for size in self.client.multi_get_into(keys, blocks)]

    def live(self):
        return json.loads(self.client.server_stats())["records"]


class Redis(blocks_client.Redis):
    def found(self, keys, blocks):
        values = self.client.mget(keys)
        for block, value in zip(blocks, values):
            if value is not None:
                block[:] = numpy.frombuffer(value, dtype=numpy.uint8)
        return [value is not None for value in values]

    def live(self):
        return self.client.dbsize()


class ExactLru:
    """Knows which blocks it would have, and has none."""

    def __init__(self, room, _transport):
        self.room, self.cached = int(room), collections.OrderedDict()

    def found(self, keys, _blocks):
        found = [key in self.cached for key in keys]
        for key in keys:
            if key in self.cached:
                self.cached.move_to_end(key)
        return found

    def put(self, keys, _blocks):
        for key in keys:
            self.cached[key] = True
            self.cached.move_to_end(key)
            if len(self.cached) > self.room:
                self.cached.popitem(last=False)

    def live(self):
        return len(self.cached)


def prompts_of(prompts, requests, seed):
    """Which prompt each request has: Zipf's law with 0.99, as YCSB."""
    weights = numpy.arange(1, prompts + 1) ** -0.99
    random = numpy.random.default_rng(seed)
    return random.permutation(prompts)[random.choice(prompts, requests, p=weights / weights.sum())].tolist()


def mark(block, prompt, number):
    block[:8] = numpy.frombuffer((prompt * 1000 + number).to_bytes(8, "little"), dtype=numpy.uint8)


def request(store, prompt, there, computed):
    """Returns how many blocks were cached."""
    keys = [b"kv/%06d/%03d" % (prompt, number) for number in range(len(there))]
    found = store.found(keys, there)
    cached = next((i for i, one in enumerate(found) if not one), len(found))  # a prefix is of use
    for number in range(len(there)):
        mark(computed[number], prompt, number)
    if not isinstance(store, ExactLru) and not (there[:cached, :8] == computed[:cached, :8]).all():
        sys.exit("a block of another prompt was found")
    if cached < len(there):
        store.put(keys[cached:], computed[cached:])
    return cached


def main():
    kind, address, transport = sys.argv[1:4]
    size, blocks, prompts, requests, seed = map(int, sys.argv[4:])
    store = {"rkv": Rkv, "redis": Redis, "lru": ExactLru}[kind](address, transport)
    there = numpy.zeros((blocks, size), dtype=numpy.uint8)
    computed = numpy.random.default_rng(1).integers(0, 255, there.shape, dtype=numpy.uint8)
    order = prompts_of(prompts, 2 * requests, seed)
    for prompt in order[:requests]:  # until the store is full, and has seen what is asked for often
        request(store, prompt, there, computed)
    hits, live, took = 0, [], 0.0
    for first in range(requests, 2 * requests, SAMPLED):
        begin = time.perf_counter()
        hits += sum(request(store, prompt, there, computed) for prompt in order[first:first + SAMPLED])
        took += time.perf_counter() - begin
        live.append(store.live() * size)
    print(json.dumps({"hit rate": hits / (requests * blocks), "requests/s": requests / took,
                      "live bytes": sum(live) / len(live)}))


if __name__ == "__main__":
    main()
