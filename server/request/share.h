// Share: a share of a thread's time, for work that is expensive and can wait. A flood of such work
// then leaves time for everything else. Unused time accumulates up to a limit, so occasional work
// is not delayed. Overspent time counts up to the same limit, because a clock also counts time in
// which the thread did not run. So a wait for more time ends within parts * most.
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
  // The moment at which some time is available again, as of the last has_some().
  Nanos again_at() const { return counted_ + (left_ > 0 ? 0 : (1 - left_) * parts_); }

 private:
  Nanos parts_;
  Nanos most_;
  Nanos left_;
  Nanos counted_ = 0;
};

}  // namespace rkv::server
