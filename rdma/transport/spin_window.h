// SpinWindow: how long a wait spins before it sleeps. It adapts to the earlier waits of the thread,
// like KVM's halt polling (Documentation/virt/kvm/halt-polling.rst in Linux):
//
//  - After a sleep that was soon over the window doubles. A longer spin would have caught the event
//    without a sleep and a wake-up.
//  - After a long sleep it halves, down to kShortest. After kIdle long sleeps in a row it is 0,
//    until a sleep is soon over: the thread is idle, or so many threads share the processors that
//    none of its spins can catch an event.
//  - If more of the spins beyond kShortest end in sleeps than catch an event, they do not help.
//    Perhaps the peer needs this very processor. The window is kShortest for the next kHeld sleeps.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <thread>

#include "rdma/transport/transport.h"

namespace rkv::rdma {

class SpinWindow {
 public:
  // About the cost of a sleep and a wake-up.
  static constexpr Nanos kShortest = 20'000;
  static constexpr Nanos kLongest = 100'000;
  // A wait up to this long was soon over. More than kLongest, because a wait that slept includes
  // the time until the thread ran again.
  static constexpr Nanos kSoon = 250'000;
  // How many more of the spins beyond kShortest may fail than succeed.
  static constexpr unsigned kFailures = 4;
  static constexpr unsigned kHeld = 256;
  static constexpr unsigned kIdle = 8;

  // Calls `ready()` until it returns true, the window is over, or the deadline has passed. Returns
  // false if the thread should sleep. In mode kBusy the window has no end.
  template <class Ready>
  bool spin(Ready ready, PollMode mode, const Deadline& deadline);
  // Records a wait that ended with a sleep. `waited`: from its beginning to its end.
  void slept(Nanos waited);
  Nanos length() const { return length_; }

 private:
  static constexpr int kChecksPerLook = 16;  // reading the clock costs as much as some checks
  static constexpr Nanos kYieldEvery = 100'000;

  Nanos length_ = kShortest;
  unsigned failures_ = 0;
  unsigned held_ = 0;
  unsigned long_sleeps_ = 0;  // one after the other
};

inline void SpinWindow::slept(Nanos waited) {
  const bool soon = waited <= kSoon;
  long_sleeps_ = soon ? 0 : long_sleeps_ + 1;
  if (length_ > kShortest && ++failures_ == kFailures) {
    failures_ = 0;
    held_ = kHeld;
    length_ = kShortest;
  } else if (!soon) {
    length_ = long_sleeps_ >= kIdle ? 0 : std::max(length_ / 2, kShortest);
  } else if (length_ < kShortest) {
    length_ = kShortest;
  } else if (held_ != 0) {
    --held_;
  } else {
    length_ = std::min(2 * length_, kLongest);
  }
}

template <class Ready>
bool SpinWindow::spin(Ready ready, PollMode mode, const Deadline& deadline) {
  const SteadyClock clock;
  const Nanos begin = clock.now();
  for (Nanos now = begin, yielded = begin;;) {
    for (int i = 0; i < kChecksPerLook; ++i) {
      if (!ready()) continue;
      if (failures_ != 0 && now - begin > kShortest) --failures_;
      long_sleeps_ = 0;
      return true;
    }
    now = clock.now();
    if (now >= deadline.at()) return true;
    if (mode != PollMode::kBusy && now - begin >= length_) return false;
    if (now - yielded < kYieldEvery) continue;
    std::this_thread::yield();  // the peer may need this processor
    yielded = now;
  }
}

}  // namespace rkv::rdma
