// Background: the threads of a part that works beside requests, and how they wait. The parts
// (Loads, WarmUp, Scans, Backups, Stepper) hold one each; a simulation gives them fibers in place
// of threads.
//
//   background->start("rkv-scans", [this] { run(); });
//   ...
//   std::unique_lock lock(mutex_);            // in run()
//   while (!stopping_ && asked_.empty()) background->wait(lock);
//   ...
//   background->notify();                     // after a change of what run() waits for
//   background->join();                       // after stopping_ was set, and notify()
//
// Thread safety: wait: the bodies; notify: any thread. start, running, join: the owner.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <mutex>

#include "common/clock.h"

namespace rkv::server {

class Background {
 public:
  static constexpr Nanos kUntilNotified = std::numeric_limits<Nanos>::max();

  Background() = default;
  virtual ~Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs `body` beside the caller until it returns. Several may run. `name`: at most 15 characters.
  virtual void start(const char* name, std::function<void()> body) = 0;
  // Whether a body was started and not joined.
  virtual bool running() const = 0;
  // Blocks until every body has returned.
  virtual void join() = 0;

  // Releases `lock`, blocks until notify() or for `at_most`, and takes it again. May return early:
  // the caller looks at what it waits for. A change made under the same mutex is never missed.
  virtual void wait(std::unique_lock<std::mutex>& lock, Nanos at_most = kUntilNotified) = 0;
  // Ends every wait() that is under way. Does not block.
  virtual void notify() = 0;
};

// How a part gets its Background.
using MakeBackground = std::function<std::unique_ptr<Background>()>;

// Threads of this process.
std::unique_ptr<Background> background_threads();

}  // namespace rkv::server
