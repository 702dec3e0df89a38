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

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "common/clock.h"
#include "server/background.h"

namespace rkv::server {

class Stepper {
 public:
  using Step = std::function<Nanos()>;
  // `name`: of the thread, at most 15 characters, static.
  Stepper(const char* name, const Clock& clock, Step step,
          std::unique_ptr<Background> background = background_threads())
      : name_(name), clock_(clock), step_(std::move(step)), background_(std::move(background)) {}
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
  const std::unique_ptr<Background> background_;
  std::mutex mutex_;  // guards the two below
  bool called_ = false;
  bool stopping_ = false;
};

}  // namespace rkv::server
