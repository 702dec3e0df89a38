#!/usr/bin/env python3
"""A cache of KV blocks for LLM inference on rkv: the keys and values that attention has computed for a
prompt are stored in blocks of some tokens, and a later prompt with the same beginning gets them
back instead of computing them.

    kv_block_cache.py [--ttl SECONDS] [--block-kib N] [HOST:PORT]

A block is addressed by a hash of all tokens up to its end, so that two prompts share the blocks of
their common prefix and no others. Blocks are arrays of one size, which are sent from the pages of the
caller without a copy in Python, and READ straight into them: the pages lie in registered memory.

`kvserver --evict` drops the blocks used least recently when it is full. A full store without --evict
refuses new blocks until old ones have lived for --ttl seconds. The cache then leaves the new ones out, and
they are computed again.
"""

import argparse
import hashlib
import math
import sys

import numpy
import rkv


class BlockCache:
    """Blocks of `tokens_per_block` tokens. `model` keeps the blocks of different models, or layouts,
    apart. `ttl`: seconds that a block lives after it was written; None: without end."""

    # What says that the store has no place now, or does not answer: a cache goes on without it.
    REFUSALS = (rkv.OutOfMemory, rkv.Busy, rkv.Timeout, rkv.Disconnected, rkv.Unreachable)

    def __init__(self, client, model, tokens_per_block=16, ttl=None, batch=8):
        self.client, self.model, self.ttl, self.batch = client, model, ttl, batch
        self.tokens_per_block = tokens_per_block
        self.asked = self.hits = self.stored = self.dropped = 0

    def keys(self, tokens):
        """One for each whole block of the prompt."""
        prefix = hashlib.sha256(self.model.encode())
        size = self.tokens_per_block
        keys = []
        for end in range(size, len(tokens) + 1, size):
            prefix.update(numpy.asarray(tokens[end - size:end], dtype=numpy.uint32).tobytes())
            keys.append(b"kv/" + prefix.digest()[:16])
        return keys

    def cached_blocks(self, tokens, pages):
        """Reads the longest cached prefix into the first of `pages`; returns the number of its blocks.
        All blocks are asked for at once: one READ each, if the client knows their places."""
        keys = self.keys(tokens)[:len(pages)]
        try:
            sizes = self.client.multi_get_into(keys, pages[:len(keys)])
        except self.REFUSALS:
            sizes = [None] * len(keys)
        found = next((i for i, size in enumerate(sizes) if size is None), len(keys))
        self.asked += len(keys)
        self.hits += found
        return found

    def store(self, tokens, pages, first=0):
        """Stores the blocks from the one numbered `first`, of pages that were computed, some at a time.
        Returns whether the store took all. After a refusal the rest is dropped: a block is of use only
        with all blocks before it."""
        keys = self.keys(tokens)[first:len(pages)]
        for begin in range(0, len(keys), self.batch):
            some = keys[begin:begin + self.batch]
            try:
                self.client.multi_put(zip(some, pages[first + begin:]), ttl=self.ttl)
            except self.REFUSALS:
                self.dropped += len(keys) - begin  # some of the batch may be there
                return False
            self.stored += len(some)
        return True

    @property
    def hit_rate(self):
        return self.hits / self.asked if self.asked else 0.0


def attention(tokens, number, shape):
    """Stands for the model: what it computes for a block depends on all tokens before its end."""
    return numpy.random.default_rng([len(tokens), number, *tokens[:4], *tokens[-4:]]).standard_normal(
        shape, dtype=numpy.float32).astype(numpy.float16)


def seconds(text):
    number = float(text)
    if not 0 < number <= 366 * 86400:  # neither is "nan"
        raise argparse.ArgumentTypeError(f"needs a number of seconds above 0, at most a year, not '{text}'")
    return number


def block_shape(text):
    """Keys and values; layers; tokens; heads; numbers of each, of two bytes: 32 KiB a layer."""
    layers, rest = divmod(int(text), 32)
    if rest or not 2 <= layers <= 128:
        raise argparse.ArgumentTypeError(f"needs a multiple of 32 from 64 to 4096, not '{text}'")
    return (2, layers, 16, 8, 64)


def registered_pages(client, count, shape):
    size = math.prod(shape) * numpy.dtype(numpy.float16).itemsize
    return numpy.frombuffer(client.allocate(count * size), dtype=numpy.float16).reshape(count, *shape)


def serve(cache, prompts, shape):
    """What a server of a model does with each prompt."""
    for number, prompt in enumerate(prompts):
        pages = registered_pages(cache.client, len(prompt) // 16, shape)
        found = cache.cached_blocks(prompt, pages)
        for block in range(found, len(pages)):
            pages[block] = attention(prompt[:(block + 1) * 16], block, shape)
        cache.store(prompt, pages, first=found)
        again = registered_pages(cache.client, len(pages), shape)
        there = cache.cached_blocks(prompt, again)
        equal = (again[:there] == pages[:there]).all()
        print(f"prompt {number}: {found} of {len(pages)} blocks cached, "
              f"{'all' if there == len(pages) else there} of them {'equal' if equal else 'NOT equal'} afterwards")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", nargs="?", default="127.0.0.1:7471", metavar="HOST:PORT")
    parser.add_argument("--ttl", type=seconds, metavar="SECONDS",
                        help="how long a block lives after it was written (default: blocks do not expire)")
    parser.add_argument("--block-kib", type=block_shape, default="256", dest="shape", metavar="N",
                        help="size of a block, from 64 to 4096 (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=3, metavar="N")
    options = parser.parse_args()
    try:
        client = rkv.Client(server=options.server, repeat_connect=False)
    except rkv.Error as error:
        sys.exit(f"connect: {error}")
    with client:
        cache = BlockCache(client, f"a model of blocks {options.shape}", ttl=options.ttl)
        system_prompt = list(range(96))
        serve(cache, [system_prompt + [1000 + number] * 32 for number in range(options.prompts)], options.shape)
        print(f"hit rate: {cache.hit_rate:.2f}")
        if cache.dropped:
            print(f"the store is full: {cache.stored} blocks were stored and {cache.dropped} dropped")


if __name__ == "__main__":
    main()
