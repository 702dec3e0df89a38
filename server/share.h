// A share of a thread's time: for what is dear and can wait, so that a flood of it does not take
// the time of all else. Unused time is kept up to a limit: who asks now and then does not notice.
// Time overspent counts up to the same limit, so a wait for more ends within parts * most: a clock
// also counts the time in which the thread did not run.
//
//   Share share(128, 5 * kNanosPerMs);   // 1 in 128 of the time, 5 ms at a stretch
//   if (share.has_some(now)) { ...; share.spend(clock.now() - now); }
//
// Thread safety: one owner.
#pragma once

#include <algorithm>

#include "common/clock.h"

namespace rkv::server {

class Share {
 public:
  Share(Nanos parts, Nanos most) : parts_(parts), most_(most), left_(most) {}

  bool has_some(Nanos now) {
    left_ = std::min(most_, left_ + (now - counted_) / parts_);
    counted_ = now;
    return left_ > 0;
  }
  void spend(Nanos time) { left_ = std::max(left_ - time, -most_); }
  // When it has some again, by the last has_some().
  Nanos again_at() const { return counted_ + (left_ > 0 ? 0 : (1 - left_) * parts_); }

 private:
  Nanos parts_;
  Nanos most_;
  Nanos left_;
  Nanos counted_ = 0;
};

}  // namespace rkv::server
