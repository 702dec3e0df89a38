// A BackgroundThread (server/background/background_thread.h) on fibers of the simulation: the
// server's work beside requests runs as on threads, but on the simulated clock.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "common/check.h"
#include "common/mutex.h"
#include "server/background/background_thread.h"
#include "tests/sim/network/scheduler.h"

namespace rkv::sim {

class FiberBackground : public server::BackgroundThread {
 public:
  // `group`: the group of its fibers (Scheduler::spawn).
  FiberBackground(rdma::sim::Scheduler& scheduler, int group)
      : scheduler_(scheduler), group_(group) {}
  ~FiberBackground() override {
    RKV_CHECK(running_ == 0, "a part is destroyed while its fibers run");
  }

  void start(const char* name, std::function<void()> body) override {
    ++running_;
    scheduler_.spawn(
        name,
        [this, body = std::move(body)] {
          body();
          --running_;
        },
        group_);
  }
  void wait(Mutex& mutex, Nanos at_most) override RKV_REQUIRES(mutex) {
    Waiter& waiter = free_waiter();
    waiter.used = true;
    mutex.unlock();
    scheduler_.park(waiter.point, scheduler_.now() + std::min(at_most, kLongest));
    mutex.lock();
    waiter.used = false;
  }
  void notify() override {
    for (Waiter& waiter : waiters_)
      if (waiter.used) scheduler_.notify(waiter.point);
  }

 private:
  static constexpr Nanos kLook = 20'000;
  static constexpr Nanos kLongest = 3'600'000 * kNanosPerMs;
  struct Waiter {
    rdma::sim::WaitPoint point;
    bool used = false;
  };

  void join() override {
    while (running_ != 0)
      scheduler_.sleep(1 + scheduler_.up_to(kLook));
  }
  Waiter& free_waiter() {
    const auto found = std::ranges::find(waiters_, false, &Waiter::used);
    return found != waiters_.end() ? *found : waiters_.emplace_back();
  }

  rdma::sim::Scheduler& scheduler_;
  const int group_;
  int running_ = 0;
  std::deque<Waiter> waiters_;  // one per waiting fiber; a deque, because fibers hold references
};

}  // namespace rkv::sim
