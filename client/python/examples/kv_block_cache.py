#!/usr/bin/env python3
"""A cache of KV blocks for LLM inference on rkv: the keys and values that attention has computed for a
prompt are stored in blocks of some tokens, and a later prompt with the same beginning gets them
back instead of computing them.

    kv_block_cache.py [HOST:PORT]

A block is addressed by a hash of all tokens up to its end, so that two prompts share the blocks of
their common prefix and no others. Blocks are arrays of one size, which are sent from the pages of the
caller without a copy in Python, and READ straight into them: the pages lie in registered memory. They
expire after --ttl seconds without a write: the store evicts nothing else.
"""

import argparse
import hashlib
import math
import sys

import numpy
import rkv


class BlockCache:
    """Blocks of `tokens_per_block` tokens. `model` keeps the blocks of different models, or layouts,
    apart."""

    def __init__(self, client, model, tokens_per_block=16, ttl=None):
        self.client, self.model = client, model
        self.tokens_per_block, self.ttl = tokens_per_block, ttl
        self.asked = self.hits = 0

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
        sizes = self.client.multi_get_into(keys, pages[:len(keys)])
        found = next((i for i, size in enumerate(sizes) if size is None), len(keys))
        self.asked += len(keys)
        self.hits += found
        return found

    def store(self, tokens, pages, first=0):
        """Stores the blocks from the one numbered `first`, of pages that were computed."""
        keys = self.keys(tokens)[first:len(pages)]
        if self.ttl is None:
            self.client.multi_put(zip(keys, pages[first:]))
        else:
            for key, page in zip(keys, pages[first:]):
                self.client.put(key, page, ttl=self.ttl)

    @property
    def hit_rate(self):
        return self.hits / self.asked if self.asked else 0.0


def attention(tokens, number, shape):
    """Stands for the model: what it computes for a block depends on all tokens before its end."""
    return numpy.random.default_rng([len(tokens), number, *tokens[:4]]).standard_normal(
        shape, dtype=numpy.float32).astype(numpy.float16)


def positive(text):
    if (number := float(text)) <= 0:
        raise argparse.ArgumentTypeError(f"needs a number above 0, not '{text}'")
    return number


def registered_pages(client, count, shape):
    size = math.prod(shape) * numpy.dtype(numpy.float16).itemsize
    return numpy.frombuffer(client.allocate(count * size), dtype=numpy.float16).reshape(count, *shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", nargs="?", default="127.0.0.1:7471", metavar="HOST:PORT")
    parser.add_argument("--ttl", type=positive, help="seconds after which a block expires (default: never)")
    options = parser.parse_args()
    shape = (2, 8, 16, 8, 64)  # keys and values; layers; tokens; heads; numbers of each: 256 KiB
    try:
        client = rkv.Client(server=options.server, repeat_connect=False)
    except rkv.Error as error:
        sys.exit(f"connect: {error}")
    with client:
        cache = BlockCache(client, "a model", ttl=options.ttl)
        system_prompt = list(range(96))
        for number in range(3):
            prompt = system_prompt + [1000 + number] * 32
            pages = registered_pages(client, len(prompt) // 16, shape)
            found = cache.cached_blocks(prompt, pages)
            for block in range(found, len(pages)):
                pages[block] = attention(prompt[:(block + 1) * 16], block, shape)
            cache.store(prompt, pages, first=found)
            again = registered_pages(client, len(pages), shape)
            whole = cache.cached_blocks(prompt, again) == len(pages) and (again == pages).all()
            print(f"prompt {number}: {found} of {len(pages)} blocks cached, "
                  f"all of them {'equal' if whole else 'NOT equal'} afterwards")
        print(f"hit rate: {cache.hit_rate:.2f}")


if __name__ == "__main__":
    main()
