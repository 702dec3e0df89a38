// ReplicationRounds: what an answer awaits that proves that this server was the primary after the
// request had arrived (a ping, from which a client learns the server's clock).
//
// A round is a message to each replica that is in sync, and its answer. The workers ask, and the
// replicator makes the rounds:
//
//   worker:      number = rounds.ask();          // and holds the answer until is_done(number)
//   replicator:  number = rounds.begin();        // before it makes the messages of the round
//                ... each in-sync backup has answered a message that was made after begin() ...
//                rounds.complete(number);        // then wakes the workers (SERVE-5)
//
// A primary that is alone completes a round at once.
//
// Invariant:
//  ROUND-1  is_done(ask()) is true only after a round whose messages were made after ask().
//
// Thread safety: begin, complete, is_wanted: the replicator. ask, is_done: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace rkv::server {

class ReplicationRounds {
 public:
  // `wake` may be called by any worker: a round is wanted. It must not block.
  explicit ReplicationRounds(std::function<void()> wake = [] {}) : wake_(std::move(wake)) {}

  // Asks for a round that begins after this call.
  std::uint64_t ask() {
    const std::uint64_t number = asked_.fetch_add(1, std::memory_order_acq_rel) + 1;
    wake_();
    return number;
  }
  bool is_done(std::uint64_t number) const {
    return done_.load(std::memory_order_acquire) >= number;
  }

  // Whether somebody waits for a round.
  bool is_wanted() const {
    return asked_.load(std::memory_order_acquire) > done_.load(std::memory_order_relaxed);
  }
  // A round begins. Returns its number: it is for all who have asked before.
  std::uint64_t begin() const { return asked_.load(std::memory_order_acquire); }
  // The round with this number is complete, and with it all rounds before.
  void complete(std::uint64_t number) {
    if (number > done_.load(std::memory_order_relaxed))
      done_.store(number, std::memory_order_release);
  }

 private:
  const std::function<void()> wake_;
  std::atomic<std::uint64_t> asked_{0};
  std::atomic<std::uint64_t> done_{0};
};

}  // namespace rkv::server
