// What is known of the server's clock from its answers. A request says with it until when it may be
// begun. So a server that was stopped meanwhile knows which clients no longer wait.
//
// The clocks need not agree, and messages need not be fast. One thing is assumed: in any time the
// two clocks advance by amounts that differ by less than 1 in kDrift.
//
// Invariants:
//  B1  An answer that says s was sent when the server's clock said s or more, so at any instant t
//      of ours after it had come that clock says s + (t - came) or more, but for the drift.
//  B2  begin_by(d) is never more than what the server's clock says when ours says d: of (B1) the
//      drift of all the time from `came` to d is taken off.
//
// Both err on one side: the server may refuse a write that could still have been begun, and says
// the time with it. Then the client, which is not yet late, asks once more.
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
  // Ten times what a clock may be slewed by NTP (500 in 10^6 each), and more.
  static constexpr Nanos kDrift = 100;

  // A server has let us in, and its acceptance has come by `now`.
  void begin(std::uint64_t server_us, Nanos now) {
    set(nanos(server_us), now);
    told_ = kNothing;
  }
  // An answer has come. The clock is looked at when the next request is made, not here: what came
  // before then counts as coming then, which (B1) allows.
  void told(std::uint64_t server_us) { told_ = nanos(server_us); }

  // For a request of ours that is given up at `deadline`, and encoded after `now`; 0: too far.
  std::uint64_t begin_by_us(Nanos deadline, Nanos now) {
    if (told_ != kNothing && told_ >= at(now)) set(told_, now);
    told_ = kNothing;
    deadline = std::max(deadline, now);
    if (deadline - now > kLongest) return 0;
    const Nanos by_us = at(deadline) / kNanosPerUs;
    return std::max<std::uint64_t>(static_cast<std::uint64_t>(by_us) % kBeginByModulus, 1);
  }

 private:
  static constexpr Nanos kNothing = -1;
  // A quarter of what the field tells apart.
  static constexpr Nanos kLongest = static_cast<Nanos>(kBeginByModulus / 4) * kNanosPerUs;

  // Any number from a peer, and no overflow.
  static Nanos nanos(std::uint64_t server_us) {
    return static_cast<Nanos>(server_us % kBeginByModulus) * kNanosPerUs;
  }
  void set(Nanos server, Nanos now) {
    server_ = server;
    came_ = now;
  }
  // What the server's clock says at least when ours says `then`.
  Nanos at(Nanos then) const { return server_ + (then - came_) - (then - came_) / kDrift; }

  Nanos server_ = 0;  // what it said in the answer that had come at came_
  Nanos came_ = 0;
  Nanos told_ = kNothing;
};

}  // namespace rkv::client
