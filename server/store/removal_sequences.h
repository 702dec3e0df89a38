// RemovalSequences: when keys left memory. For each key, the highest commit sequence of a removal,
// or of a write whose record was evicted. It shows which reads of the disk are out of date.
//
// Invariants:
//  REMSEQ-1  of(hash) never falls. For every key with this hash that is not in memory, of(hash) is
//      at or above the sequence of its last write. The exception is a write by an earlier start of
//      the server.
//  REMSEQ-2  Suppose a key is not in memory now, and the disk was read after everything at or below
//      of(hash) had been written to it. Then that read gives the key's present state: it includes
//      the last write, and no later write exists.
//
// Keys share words. So a read can seem out of date when it is not; it is then repeated.
//
// Thread safety: raise() under the key's pair lock, of() from any thread. A caller that needs the
// value to stay the same holds that lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/layout.h"

namespace rkv::server {

class RemovalSequences {
 public:
  RemovalSequences() : words_(std::make_unique<std::atomic<std::uint64_t>[]>(kWords)) {}

  void raise(KeyHash hash, std::uint64_t sequence) {
    std::atomic<std::uint64_t>& word = word_of(hash);
    std::uint64_t now = word.load(std::memory_order_relaxed);
    // Threads that share the word hold other pair locks.
    while (now < sequence && !word.compare_exchange_weak(now, sequence)) {
    }
  }
  std::uint64_t of(KeyHash hash) const { return word_of(hash).load(); }
  void prefetch(KeyHash hash) const { __builtin_prefetch(&word_of(hash)); }

 private:
  // 512 KiB: at a million removals a second, 15 removals a second share a word.
  static constexpr std::uint32_t kWords = 1U << 16;
  std::atomic<std::uint64_t>& word_of(KeyHash hash) const {
    return words_[(hash.bits() >> 20) % kWords];
  }
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace rkv::server
