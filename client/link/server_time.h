// ServerTime: an estimate of the server's clock, from its answers. Every write carries the time by
// which the server must begin it. So a server that was stopped for a while knows which clients no
// longer wait.
//
// The clocks need not agree, and messages need not be fast. The only assumption: over any time the
// two clocks advance by amounts that differ by less than 1 in kDrift.
//
// Invariants:
//  STIME-1  An answer that carries the time s was sent when the server's clock read s or more. Let
//      t be an instant of this client's clock after the answer's arrival at `came`. At t the
//      server's clock reads s + (t - came) or more, except for the drift.
//  STIME-2  begin_by(d) never exceeds the server's clock at the instant when this client's clock
//      reads d. It is the bound of STIME-1, less the drift of the whole time from `came` to d.
//
// The bounds err on one side: the server may refuse a write that it could still have begun. Its
// refusal carries its time. The client, which is not late yet, then sends the request once more.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/clock.h"
#include "common/wire.h"

namespace rkv::client {

class ServerTime {
 public:
  // 1 in 100 is ten times the drift of two clocks that NTP slews at its limit (500 in 10^6 each).
  static constexpr Nanos kDrift = 100;

  // A server has accepted the connection; its acceptance has arrived by `now`.
  void begin(std::uint64_t server_us, Nanos now) {
    set(nanos(server_us), now);
    noted_ = kNothing;
  }
  // An answer has come. The client's clock is not read here, but when the next request is encoded.
  // The answer counts as arrived at that time, which STIME-1 allows.
  void note(std::uint64_t server_us) { noted_ = nanos(server_us); }

  // Encodes the time for a request that ends at `deadline` and is encoded after `now`; 0: the
  // deadline is too far away.
  std::uint64_t begin_by_us(Nanos deadline, Nanos now) {
    if (noted_ != kNothing && noted_ >= at(now)) set(noted_, now);
    noted_ = kNothing;
    deadline = std::max(deadline, now);
    if (deadline - now > kLongest) return 0;
    const Nanos by_us = at(deadline) / kNanosPerUs;
    return std::max<std::uint64_t>(static_cast<std::uint64_t>(by_us) % kBeginByModulus, 1);
  }

 private:
  static constexpr Nanos kNothing = -1;
  // A quarter of the range that the field can represent.
  static constexpr Nanos kLongest = static_cast<Nanos>(kBeginByModulus / 4) * kNanosPerUs;

  // Accepts any number from a peer, without overflow.
  static Nanos nanos(std::uint64_t server_us) {
    return static_cast<Nanos>(server_us % kBeginByModulus) * kNanosPerUs;
  }
  void set(Nanos server, Nanos now) {
    server_ = server;
    came_ = now;
  }
  // The least time of the server's clock when this client's clock reads `then`.
  Nanos at(Nanos then) const { return server_ + (then - came_) - (then - came_) / kDrift; }

  Nanos server_ = 0;  // the server's time in the answer that came at came_
  Nanos came_ = 0;
  Nanos noted_ = kNothing;
};

}  // namespace rkv::client
