// A thread for the steps of an engine that block: connecting, reading the map again. It runs one
// step at a time. Meanwhile the client's other threads do not use the engine.
//
// Invariants:
//  ASIDE-1  From run() until take_result() has returned a result, only the step uses the objects
//      that it uses.
//
// Thread safety: one thread at a time may call run() and take_result().
#pragma once

#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "rkv/result.h"

namespace rkv::client {

class Aside {
 public:
  // `on_end` is called on the thread after each step, without locks. The first run() starts the
  // thread.
  explicit Aside(std::function<void()> on_end) : on_end_(std::move(on_end)) {}
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  using Step = std::function<Status()>;
  // Runs the step on the thread. Fails if the thread cannot be started; then nothing runs.
  // REQUIRES: no step is under way, and the result of the last one was taken or dropped.
  Status run(Step step);
  bool is_idle() const { return is_idle_; }
  // Whether take_result() would return something.
  bool has_result();
  // Returns the step's status once the step has ended; then another step may run.
  std::optional<Status> take_result();
  // Waits until the step under way, if any, has ended, and drops its result.
  void wait();

 private:
  void serve();

  const std::function<void()> on_end_;
  bool is_idle_ = true;
  Mutex mutex_;
  ConditionVariable changed_;
  Step step_ RKV_GUARDED_BY(mutex_);
  std::optional<Status> result_ RKV_GUARDED_BY(mutex_);
  bool ends_ RKV_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rkv::client
