// Discrete-event simulation: a clock that advances from event to event, fibers that wait for times,
// and one generator of random numbers. A run is a function of the seed.
//
//   Scheduler scheduler(seed);
//   scheduler.spawn("client 1", [&] { ... scheduler.sleep(kNanosPerMs); ... });
//   scheduler.at(scheduler.now() + 500, [&] { deliver(); });
//   if (const auto stuck = scheduler.run(limit)) complain(*stuck);
//
// There are two kinds of events. *Device events* (at()) are actions of hardware: they call no
// product code and may happen between any two instructions of a fiber, so spend() runs them too.
// *Resuming a fiber* happens only when no other fiber runs: where the running fiber waits, or
// sleeps to let others run first.
//
// Invariants:
//  SIMSCHED-1  The earlier of two events runs first; of two events at the same time, the one
//      created first.
//  SIMSCHED-2  Nothing here depends on real time, on addresses or on any order except that of the
//      events.
//
// Thread safety: none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "tests/sim/network/fiber.h"

namespace rkv::rdma::sim {

// An object on which at most one fiber waits for notify().
class WaitPoint {
 private:
  friend class Scheduler;
  std::size_t task_ = 0;      // the waiting task's index plus 1; 0 = none
  std::uint64_t ticket_ = 0;  // of that wait
};

class Scheduler final : public Clock {
 public:
  // Speed of the fibers' processors; times in nanoseconds.
  struct Pace {
    Nanos wake_up = 2'000;       // from notify() to running, at most
    std::uint64_t yield_in = 8;  // 1 in so many calls of may_yield() gives way; 0 = none
    Nanos yield = 3'000;         // for at most this long
  };

  explicit Scheduler(std::uint64_t seed) : random_(seed) {}
  // REQUIRES: every fiber has ended.
  ~Scheduler() override;

  Nanos now() const override { return now_; }
  Random& random() { return random_; }
  bool chance(std::uint64_t one_in) { return one_in != 0 && random_.below(one_in) == 0; }
  // Uniform in [0, limit].
  Nanos up_to(Nanos limit) {
    return static_cast<Nanos>(random_.below(static_cast<std::uint64_t>(limit) + 1));
  }
  Pace& pace() { return pace_; }

  // Fibers of the same group, other than 0, exclude one another during sleep_holding().
  void spawn(std::string name, std::function<void()> body, int group = 0);
  void at(Nanos when, std::function<void()> device_event);

  // Blocks until notify() or the given time. Outside of any fiber: runs events meanwhile.
  void park(WaitPoint& point, Nanos until);
  void notify(WaitPoint& point);
  void sleep(Nanos duration);
  // As sleep(), for a fiber that holds a lock: no other fiber of its group runs until the call
  // returns. Otherwise another fiber might wait for that lock and block the only thread.
  void sleep_holding(Nanos duration);
  int group() const { return running_ == nullptr ? 0 : running_->group; }
  // Lets another fiber run first, in 1 of Pace::yield_in calls.
  void may_yield();
  // Advances the time by `duration`, as if the caller computed. Device events run meanwhile, fibers
  // do not.
  void spend(Nanos duration);

  // Runs until every fiber has ended, then returns nullopt. If no event is left, or after
  // `max_events` events or the time `latest`, returns the reason and the names of the fibers that
  // have not ended.
  std::optional<std::string> run(std::uint64_t max_events, Nanos latest);
  // Runs until `enough` returns true. Returns false when no event is left.
  bool run_until(const std::function<bool()>& enough);
  bool in_fiber() const { return running_ != nullptr; }
  std::uint64_t events() const { return events_; }

  // The trace: a hash of every event that is passed to trace(). Equal traces mean equal runs.
  void trace(std::uint64_t what, std::uint64_t detail) {
    trace_ = mix64(trace_ ^ what) + mix64(detail ^ static_cast<std::uint64_t>(now_));
  }
  std::uint64_t trace_hash() const { return trace_; }

 private:
  struct Task {
    std::size_t index = 0;
    int group = 0;
    std::string name;
    std::unique_ptr<Fiber> fiber;
    std::uint64_t ticket = 0;  // of its present wait: older wake-ups are ignored
    bool waiting = false;
  };
  struct DeviceEvent {
    Nanos at;
    std::uint64_t number;
    std::function<void()> run;
  };
  struct WakeUp {
    Nanos at;
    std::uint64_t number;
    std::size_t task;
    std::uint64_t ticket;
  };
  struct Later {
    template <class T, class U>
    bool operator()(const T& a, const U& b) const {
      return a.at != b.at ? a.at > b.at : a.number > b.number;
    }
  };

  bool step();
  void run_device_event();
  void resume(const WakeUp& wake_up);
  void park_outside(WaitPoint& point, Nanos until);
  std::string who_waits() const;

  Nanos now_ = 1;
  Random random_;
  Pace pace_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::size_t unfinished_ = 0;
  Task* running_ = nullptr;
  std::priority_queue<DeviceEvent, std::vector<DeviceEvent>, Later> device_;
  std::priority_queue<WakeUp, std::vector<WakeUp>, Later> wake_ups_;
  Task* holder_ = nullptr;         // the fiber in sleep_holding()
  std::vector<WakeUp> held_back_;  // until sleep_holding() returns
  std::uint64_t next_number_ = 0;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t outside_ticket_ = 0;  // of the wait outside of any fiber; 0 = notified
  std::uint64_t events_ = 0;
  std::uint64_t trace_ = 0;
};

}  // namespace rkv::rdma::sim
