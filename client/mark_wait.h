// How a client waits for a mark of the server to cover a version: when it READs the mark lines
// again, and when it asks instead.
//
// READs cost the server no processor time, so they come first. They do not bring the mark nearer,
// and they say nothing while the thread that writes the lines is stopped between two words. So some
// milliseconds later a request follows: every answer has the marks, a flush makes the server sync
// now instead of when its timer says, and a ping is enough for the write-ahead log, which is
// written within milliseconds anyway.
//
// Thread safety: none.
#pragma once

#include "client/retry_policy.h"
#include "common/wire.h"
#include "rkv/durability.h"

namespace rkv::client {

class MarkWait {
 public:
  explicit MarkWait(std::uint64_t seed) : pauses_(kFirstPause, kLongestPause, seed) {}

  void begin() {
    looks_ = 0;
    pauses_.reset();
  }
  // After a look that did not show enough: whether it is time for a request.
  bool asks_after_look() {
    ++looks_;
    return looks_ >= kLooksFirst && (looks_ - kLooksFirst) % kLooksBetween == 0;
  }
  // Until the next look.
  Nanos pause() { return pauses_.next(); }

  static Opcode request_for(Durability level) {
    return level == Durability::kSync ? Opcode::kFlush : Opcode::kPing;
  }

 private:
  // The pauses double from the first: six looks take about 4 ms, in which a server that syncs for
  // somebody anyway is mostly done. Another request after 16 looks of the longest pause: a third of
  // a second, for a server that refused the first.
  static constexpr Nanos kFirstPause = kNanosPerMs / 4;
  static constexpr Nanos kLongestPause = 20 * kNanosPerMs;
  static constexpr unsigned kLooksFirst = 6;
  static constexpr unsigned kLooksBetween = 16;

  unsigned looks_ = 0;
  Backoff pauses_;
};

}  // namespace rkv::client
