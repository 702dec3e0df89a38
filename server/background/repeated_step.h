// RepeatedStep: a thread that runs one step whenever call() is called, and at the time that its
// last step returned.
//
//   RepeatedStep grower("grower", clock, [&] { ...; return time_of_the_next_step; });
//   store.growth().on_low_memory([&] { grower.call(); });
//   grower.start();   // runs the first step at once
//   ...
//   grower.stop();
//
// Thread safety: one owner; call() from any thread, also before start().
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "common/clock.h"
#include "common/mutex.h"
#include "server/background/background_thread.h"

namespace rkv::server {

class RepeatedStep {
 public:
  using Step = std::function<Nanos()>;
  // `name`: the thread's name; at most 15 characters, static. `step` returns the time of the next
  // step.
  RepeatedStep(const char* name, const Clock& clock, Step step,
               std::unique_ptr<BackgroundThread> background = background_threads())
      : name_(name), clock_(clock), step_(std::move(step)), background_(std::move(background)) {}
  ~RepeatedStep() { stop(); }  // REQUIRES: no later call()
  RepeatedStep(const RepeatedStep&) = delete;
  RepeatedStep& operator=(const RepeatedStep&) = delete;

  void start();
  void stop() { background_->stop(mutex_); }
  void call();

 private:
  void run();

  const char* const name_;
  const Clock& clock_;
  const Step step_;
  Mutex mutex_;
  bool called_ RKV_GUARDED_BY(mutex_) = false;
  const std::unique_ptr<BackgroundThread> background_;
};

}  // namespace rkv::server
