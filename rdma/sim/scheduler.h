// Simulated time: a clock that jumps from event to event, fibers that wait on it, and one source of
// chance. Everything that happens is a function of the seed.
//
//   Scheduler scheduler(seed);
//   scheduler.spawn("client 1", [&] { ... scheduler.sleep(kNanosPerMs); ... });
//   scheduler.at(scheduler.now() + 500, [&] { deliver(); });
//   if (const auto stuck = scheduler.run(limit)) complain(*stuck);
//
// Two kinds of events. *Device events* (at()) are what hardware does: they call no product code,
// may happen between any two instructions of a fiber, and so run inside spend() as well. *Resuming
// a fiber* happens only when no other fiber runs: where one waits, or sleeps to let others come
// first.
//
// Invariants:
//  S1  Of two events the earlier runs first; of two at one time, the one made first.
//  S2  Nothing here looks at real time, addresses or any order but that of the events.
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
#include "rdma/sim/fiber.h"

namespace rkv::rdma::sim {

// Where one fiber at a time waits to be notified.
class WaitPoint {
 private:
  friend class Scheduler;
  std::size_t task_ = 0;      // who waits, plus one; 0 = nobody
  std::uint64_t ticket_ = 0;  // of that wait
};

class Scheduler final : public Clock {
 public:
  // How the fibers' processors behave; times in nanoseconds.
  struct Pace {
    Nanos wake_up = 2'000;       // from notify() to running, at most
    std::uint64_t yield_in = 8;  // one of so many may_yield() gives way; 0 = none
    Nanos yield = 3'000;         // for so long at most
  };

  explicit Scheduler(std::uint64_t seed) : random_(seed) {}
  // REQUIRES that every fiber has ended, or abandon().
  ~Scheduler() override;

  Nanos now() const override { return now_; }
  Random& random() { return random_; }
  bool chance(std::uint64_t one_in) { return one_in != 0 && random_.below(one_in) == 0; }
  // Uniform in [0, limit].
  Nanos up_to(Nanos limit) {
    return static_cast<Nanos>(random_.below(static_cast<std::uint64_t>(limit) + 1));
  }
  Pace& pace() { return pace_; }

  // Fibers of one group other than 0 exclude one another where sleep_holding() says so.
  void spawn(std::string name, std::function<void()> body, int group = 0);
  void at(Nanos when, std::function<void()> device_event);

  // Blocks until notify(), or the time. Outside of any fiber: runs events meanwhile.
  void park(WaitPoint& point, Nanos until);
  void notify(WaitPoint& point);
  void sleep(Nanos duration);
  // The same in the midst of what a lock protects: until it returns no other fiber of the group
  // runs, or one might ask for that lock and stop the only thread there is.
  void sleep_holding(Nanos duration);
  int group() const { return running_ == nullptr ? 0 : running_->group; }
  // A place where another fiber may come first.
  void may_yield();
  // Time passes while the caller computes: device events happen meanwhile, fibers do not.
  void spend(Nanos duration);

  // Runs until every fiber has ended. When that cannot be, or has not happened after `max_events`
  // or by `latest`: who waits for what is the answer.
  std::optional<std::string> run(std::uint64_t max_events, Nanos latest);
  // Runs until `enough`; false when nothing is left to happen.
  bool run_until(const std::function<bool()>& enough);
  bool in_fiber() const { return running_ != nullptr; }
  std::uint64_t events() const { return events_; }

  // The trace: every event that anybody thinks worth telling, as one number. Equal traces, equal
  // runs.
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
    std::uint64_t ticket = 0;  // of its present wait: older wake-ups are void
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
  Task* holder_ = nullptr;         // in sleep_holding()
  std::vector<WakeUp> held_back_;  // until the holder is back
  std::uint64_t next_number_ = 0;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t outside_ticket_ = 0;  // of the wait outside of any fiber; 0 = notified
  std::uint64_t events_ = 0;
  std::uint64_t trace_ = 0;
};

}  // namespace rkv::rdma::sim
