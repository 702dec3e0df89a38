// When keys left memory: of each key the highest commit sequence of a removal, or of a write whose
// record was evicted. It says which reads of the disk are out of date.
//
// Invariants:
//  V1  of(hash) never falls, and is at or above the sequence of the last write of every key with
//      this hash that is not in memory, unless an earlier start of the server made that write.
//  V2  So, if a key is not in memory now, and the disk was read when everything at or below
//      of(hash) had been written to it, that read says how the key is now: the last write is among
//      what was read, and there is none after it.
//
// Keys share words, which can make a read look out of date that is not; it is then repeated.
//
// Thread safety: raise() under the key's pair lock, of() from anywhere; what must not change
// meanwhile takes that lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/layout.h"

namespace rkv::server {

class Departures {
 public:
  Departures() : words_(std::make_unique<std::atomic<std::uint64_t>[]>(kWords)) {}

  void raise(KeyHash hash, std::uint64_t sequence) {
    std::atomic<std::uint64_t>& word = word_of(hash);
    std::uint64_t now = word.load(std::memory_order_relaxed);
    // Others that share the word hold other locks.
    while (now < sequence && !word.compare_exchange_weak(now, sequence)) {
    }
  }
  std::uint64_t of(KeyHash hash) const { return word_of(hash).load(); }
  void prefetch(KeyHash hash) const { __builtin_prefetch(&word_of(hash)); }

 private:
  // 512 KiB: at a million removals a second, 15 a second share a word.
  static constexpr std::uint32_t kWords = 1U << 16;
  std::atomic<std::uint64_t>& word_of(KeyHash hash) const {
    return words_[(hash.bits() >> 20) % kWords];
  }
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace rkv::server
