// A thread for the steps of an engine that block: connecting, reading the map again. It runs one at
// a time, while the client's other threads leave the engine alone.
//
// Invariants:
//  ASIDE-1  From run() until take_result() has returned true nobody but the step uses what the step
//      uses.
//
// Thread safety: run() and take_result() one thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <thread>

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
  // REQUIRES that it is idle. Fails if the thread cannot be started: nothing runs then.
  Status run(Step step);
  bool is_idle() const { return is_idle_; }
  // Whether take_result() would return something.
  bool has_result();
  // The step's status, once it has ended; then the aside is idle again.
  std::optional<Status> take_result();
  // Waits until the step has ended, if there is one, and drops its result.
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
