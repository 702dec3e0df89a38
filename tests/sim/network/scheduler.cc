#include "tests/sim/network/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace rkv::rdma::sim {

namespace {
constexpr std::size_t kOutside = ~std::size_t{0};  // the caller outside of any fiber
}

Scheduler::~Scheduler() {
  RKV_CHECK(unfinished_ == 0, "a simulation is destroyed before its fibers have ended");
}

void Scheduler::spawn(std::string name, std::function<void()> body, int group) {
  auto task = std::make_unique<Task>();
  task->index = tasks_.size();
  task->group = group;
  task->name = std::move(name);
  task->fiber = std::make_unique<Fiber>(std::move(body));
  task->ticket = next_ticket_++;
  task->waiting = true;
  ++unfinished_;
  wake_ups_.push({now_ + up_to(pace_.wake_up), next_number_++, task->index, task->ticket});
  tasks_.push_back(std::move(task));
}

void Scheduler::at(Nanos when, std::function<void()> device_event) {
  device_.push({std::max(when, now_), next_number_++, std::move(device_event)});
}

void Scheduler::park(WaitPoint& point, Nanos until) {
  if (running_ == nullptr) return park_outside(point, until);
  Task& self = *running_;
  self.ticket = next_ticket_++;
  self.waiting = true;
  RKV_CHECK(point.task_ == 0, "two fibers wait at one point");
  point.task_ = self.index + 1;
  point.ticket_ = self.ticket;
  wake_ups_.push({std::max(until, now_), next_number_++, self.index, self.ticket});
  self.fiber->give_way();
  if (point.ticket_ == self.ticket) point.task_ = 0;
}

// Waits outside of any fiber, in the test's own function: runs events until one of them notifies
// it.
void Scheduler::park_outside(WaitPoint& point, Nanos until) {
  outside_ticket_ = next_ticket_++;
  point.task_ = kOutside;
  point.ticket_ = outside_ticket_;
  const std::uint64_t mine = outside_ticket_;
  while (outside_ticket_ == mine) {
    const bool any = !device_.empty() || !wake_ups_.empty();
    const Nanos next = std::min(device_.empty() ? until : device_.top().at,
                                wake_ups_.empty() ? until : wake_ups_.top().at);
    if (!any || next >= until) {
      now_ = std::max(now_, until);
      break;
    }
    (void)step();
  }
  point.task_ = 0;
}

void Scheduler::notify(WaitPoint& point) {
  if (point.task_ == 0) return;
  if (point.task_ == kOutside) {
    if (outside_ticket_ == point.ticket_) outside_ticket_ = 0;
  } else {
    wake_ups_.push({now_ + up_to(pace_.wake_up), next_number_++, point.task_ - 1, point.ticket_});
  }
  point.task_ = 0;
}

void Scheduler::sleep(Nanos duration) {
  WaitPoint nobody;
  park(nobody, now_ + duration);
}

void Scheduler::sleep_holding(Nanos duration) {
  RKV_CHECK(holder_ == nullptr && running_ != nullptr, "two fibers hold at once");
  holder_ = running_;
  sleep(duration);
  holder_ = nullptr;
  for (WakeUp& wake_up : held_back_) {
    wake_up.at = now_;
    wake_up.number = next_number_++;
    wake_ups_.push(wake_up);
  }
  held_back_.clear();
}

void Scheduler::may_yield() {
  if (running_ != nullptr && chance(pace_.yield_in)) sleep(up_to(pace_.yield));
}

void Scheduler::spend(Nanos duration) {
  const Nanos until = now_ + duration;
  while (!device_.empty() && device_.top().at <= until)
    run_device_event();
  now_ = std::max(now_, until);
}

void Scheduler::run_device_event() {
  ++events_;
  now_ = std::max(now_, device_.top().at);
  // Move the event out first: it may add others.
  const auto run = std::move(const_cast<DeviceEvent&>(device_.top()).run);
  device_.pop();
  run();
}

void Scheduler::resume(const WakeUp& wake_up) {
  Task& task = *tasks_[wake_up.task];
  if (!task.waiting || task.ticket != wake_up.ticket) return;
  if (holder_ != nullptr && holder_ != &task && task.group == holder_->group && task.group != 0) {
    held_back_.push_back(wake_up);
    return;
  }
  task.waiting = false;
  trace(1, wake_up.task);
  running_ = &task;
  task.fiber->resume();
  running_ = nullptr;
  if (task.fiber->done()) {
    task.fiber.reset();  // a later fiber reuses its stack
    --unfinished_;
  }
}

bool Scheduler::step() {
  if (device_.empty() && wake_ups_.empty()) return false;
  const bool device =
      !device_.empty() && (wake_ups_.empty() || !Later{}(device_.top(), wake_ups_.top()));
  if (device) {
    run_device_event();
    return true;
  }
  ++events_;
  const WakeUp wake_up = wake_ups_.top();
  wake_ups_.pop();
  now_ = std::max(now_, wake_up.at);
  resume(wake_up);
  return true;
}

std::optional<std::string> Scheduler::run(std::uint64_t max_events, Nanos latest) {
  while (unfinished_ != 0) {
    if (!step()) return "nothing is left to happen; " + who_waits();
    if (events_ > max_events) return fmt::format("{} events and no end; {}", events_, who_waits());
    if (now_ > latest) return "its time is over; " + who_waits();
  }
  return std::nullopt;
}

bool Scheduler::run_until(const std::function<bool()>& enough) {
  while (!enough()) {
    if (!step()) return false;
  }
  return true;
}

std::string Scheduler::who_waits() const {
  std::string text = "waiting:";
  for (const auto& task : tasks_) {
    if (task->fiber != nullptr) text += " [" + task->name + "]";
  }
  return text;
}

}  // namespace rkv::rdma::sim
