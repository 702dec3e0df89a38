// Exponential back-off with jitter.
//
// Thread safety: none.
#pragma once

#include <algorithm>

#include "common/clock.h"
#include "common/random.h"

namespace rkv::client {

class Backoff {
 public:
  Backoff(Nanos first, Nanos longest, std::uint64_t seed)
      : first_(first), longest_(longest), random_(seed) {}

  // Returns how long to wait before the next try. After the first failure there is no wait, since
  // the cause may have passed already. Then the wait doubles from `first` to `longest`; each is
  // shortened by up to one half.
  Nanos next() {
    if (failures_++ == 0) return 0;
    const unsigned doublings = std::min(failures_ - 2, 30U);
    const Nanos whole = std::min<Nanos>(longest_, first_ << std::min(doublings, 20U));
    const Nanos half = whole / 2;
    return whole - static_cast<Nanos>(random_.below(static_cast<std::uint64_t>(half) + 1));
  }
  void reset() { failures_ = 0; }

 private:
  Nanos first_;
  Nanos longest_;
  unsigned failures_ = 0;
  Random random_;
};

}  // namespace rkv::client
