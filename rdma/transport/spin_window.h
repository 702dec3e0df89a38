// SpinWindow: how long a wait spins before it sleeps. It follows what the wait's thread has seen,
// as KVM's halt polling does (Documentation/virt/kvm/halt-polling.rst in Linux):
//
//  - After a sleep that was soon over, the window doubles. A longer spin would have caught the
//    event without a sleep and a wake-up.
//  - After a long sleep it halves. An idle thread spins for kShortest per sleep.
//  - If another thread ran on the processor during a spin, the spin ends and the window is
//    kShortest again. A thread that sleeps is woken sooner than one that waits for its next slice.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <thread>

#include "rdma/transport/transport.h"

namespace rkv::rdma {

class SpinWindow {
 public:
  // About what a sleep and a wake-up cost.
  static constexpr Nanos kShortest = 20'000;
  static constexpr Nanos kLongest = 100'000;
  // A wait up to this long was soon over. More than kLongest, because a wait that slept includes
  // the time until the thread ran again.
  static constexpr Nanos kSoon = 250'000;

  // Calls `ready()` until it returns true, the window is over, or the deadline has passed. Returns
  // false if the thread should sleep. In mode kBusy the window has no end.
  template <class Ready>
  bool spin(Ready ready, PollMode mode, const Deadline& deadline, const Clock& clock = steady());
  // Records a wait that ended with a sleep. `waited`: from its beginning to its end.
  void slept(Nanos waited) {
    length_ = waited <= kSoon ? std::min(2 * length_, kLongest) : std::max(length_ / 2, kShortest);
  }
  Nanos length() const { return length_; }

 private:
  static constexpr int kChecksPerLook = 16;  // a look at the clock costs as much as some checks
  static constexpr Nanos kYieldEvery = 10'000;
  static constexpr Nanos kBusyYieldEvery = 100'000;
  // The longest time between two looks at the clock during which no other thread has run.
  static constexpr Nanos kUndisturbed = 15'000;
  static const Clock& steady() {
    static const SteadyClock clock;
    return clock;
  }

  Nanos length_ = kShortest;
};

template <class Ready>
bool SpinWindow::spin(Ready ready, PollMode mode, const Deadline& deadline, const Clock& clock) {
  const bool busy = mode == PollMode::kBusy;
  const Nanos yield_every = busy ? kBusyYieldEvery : kYieldEvery;
  const Nanos begin = clock.now();
  for (Nanos last = begin, yielded = begin;;) {
    for (int i = 0; i < kChecksPerLook; ++i) {
      if (ready()) return true;
    }
    const Nanos now = clock.now();
    if (now >= deadline.at()) return true;
    if (!busy && now - last > kUndisturbed) {
      length_ = kShortest;
      return false;
    }
    if (!busy && now - begin >= length_) return false;
    last = now;
    if (now - yielded < yield_every) continue;
    std::this_thread::yield();  // another thread may need this processor, even the peer
    yielded = now;
  }
}

}  // namespace rkv::rdma
