// Pins: hint words in which clients ask that the records of a stripe of key hashes stay whole while
// the clients READ them. While a stripe is pinned, PUT moves its records instead of writing in
// place.
//
// A pin is only a hint: no argument about what a GET may return depends on it, and the server keeps
// nothing for a client because of it. The server never writes a hint word, because atomicity
// between an adapter and the processor is not guaranteed. For example, a failing compare-and-swap
// on SoftRoCE of Linux 6.1 writes back the value that it read. Clients can make the PUTs of a
// stripe move for at most half of the time.
//
// Invariants:
//  PIN-1  A word counts only within kPinWindowMs of its tick (layout.h, pin_counts).
//  PIN-2  A stripe that is pinned without a pause counts as pinned for kPinLimitMs, then as not
//      pinned for the same time.
//
// Thread safety: add_words before the first operation; pinned: any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "common/layout.h"

namespace rkv::server {

class Pins {
 public:
  static constexpr std::uint32_t kPinLimitMs = 2 * kPinWindowMs;

  // Adds the kHintWords words of one transport's clients. Each transport has separate words: a word
  // that both an adapter and a processor swap would not be atomic.
  void add_words(const std::uint64_t* words) { words_.push_back(words); }

  bool pinned(KeyHash hash, std::uint64_t tick_ms) {
    const std::uint32_t stripe = hash.stripe();
    for (const std::uint64_t* words : words_) {
      if (pin_counts(load_word(&words[stripe]), tick_ms)) [[unlikely]] {
        return within_limit(stripe, static_cast<std::uint32_t>(tick_ms));
      }
    }
    return false;
  }

 private:
  bool within_limit(std::uint32_t stripe, std::uint32_t now_ms);

  std::vector<const std::uint64_t*> words_;
  // Per stripe: when it was last seen pinned (low half), and since when without a pause (high
  // half).
  std::array<std::atomic<std::uint64_t>, kHintWords> history_{};
};

}  // namespace rkv::server
