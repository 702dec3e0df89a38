// How a client waits until a mark of the server covers a version: when it READs the mark lines
// again, and when it also sends a request.
//
// READs cost the server no processor time, so they come first. But READs do not advance the mark,
// and they show nothing while the server's writing thread is stopped between two words. So a
// request follows after some milliseconds: every answer carries the marks. A flush makes the server
// sync now and not on its timer. A ping suffices for the write-ahead log, which is written within
// milliseconds anyway.
//
// Thread safety: none.
#pragma once

#include "client/link/retry_policy.h"
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
  // Counts a look that did not show enough. Returns true if it is time for a request.
  bool asks_after_look() {
    ++looks_;
    return looks_ >= kLooksFirst && (looks_ - kLooksFirst) % kLooksBetween == 0;
  }
  // How long to wait before the next look.
  Nanos pause() { return pauses_.next(); }

  static Opcode request_for(Durability level) {
    return level == Durability::kSync ? Opcode::kFlush : Opcode::kPing;
  }

 private:
  // The pauses double from the first. Six looks take about 4 ms; a sync that another client caused
  // is usually done by then. The request is repeated after 16 looks with the longest pause, about a
  // third of a second, in case the server refused the first request.
  static constexpr Nanos kFirstPause = kNanosPerMs / 4;
  static constexpr Nanos kLongestPause = 20 * kNanosPerMs;
  static constexpr unsigned kLooksFirst = 6;
  static constexpr unsigned kLooksBetween = 16;

  unsigned looks_ = 0;
  Backoff pauses_;
};

}  // namespace rkv::client
