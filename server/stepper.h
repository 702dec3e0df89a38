// A thread that takes a step when it is called, or when the time has come that its last step named:
// what the store needs done beside its operations (growing, expiring).
//
//   Stepper grower("grower", clock, [&] { ...; return time_of_the_next_step; });
//   store.on_low_memory([&] { grower.call(); });
//   grower.start();   // with a step at once
//   ...
//   grower.stop();
//
// Thread safety: one owner; call() from any thread, before start() too.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "common/clock.h"

namespace rkv::server {

class Stepper {
 public:
  using Step = std::function<Nanos()>;
  // `name`: of the thread, at most 15 characters, static.
  Stepper(const char* name, const Clock& clock, Step step)
      : name_(name), clock_(clock), step_(std::move(step)) {}
  ~Stepper();  // stopped; nobody may call it afterwards
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  void start();
  void stop();
  void call();

 private:
  void run();

  const char* const name_;
  const Clock& clock_;
  const Step step_;
  std::mutex mutex_;  // guards the two below
  bool called_ = false;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace rkv::server
