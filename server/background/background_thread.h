// BackgroundThread: the threads of a component that works beside requests. It starts them, lets
// them wait, and ends them. DiskFetcher, WarmUp, ReadAhead, Scans, Backups and RepeatedStep each
// hold one, as their last member: it is destroyed first, and checks that its threads have ended. A
// simulation gives them fibers instead of threads.
//
//   background->start("rkv-scans", [this] { run(); });
//   ...
//   const MutexLock lock(mutex_);             // in run()
//   while (!background->stopping() && asked_.empty()) background->wait(mutex_);
//   ...
//   background->notify();                     // after changing what run() waits for
//   background->stop(mutex_);                 // run() sees stopping() and returns
//
// Thread safety: wait: the bodies. notify, begin_stop, stopping: any thread. start, stop: the
// owner.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>

#include "common/clock.h"
#include "common/mutex.h"

namespace rkv::server {

class BackgroundThread {
 public:
  static constexpr Nanos kUntilNotified = std::numeric_limits<Nanos>::max();

  BackgroundThread() = default;
  virtual ~BackgroundThread() = default;  // REQUIRES: stopped, or not started
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Runs `body` on a thread until it returns; several bodies may run. `name`: the thread's name, at
  // most 15 characters.
  virtual void start(const char* name, std::function<void()> body) = 0;
  // Asks the bodies to return. `mutex` is the one that they wait with, so that no body misses the
  // call. Does not block.
  void begin_stop(Mutex& mutex) {
    {
      const MutexLock lock(mutex);
      stopping_.store(true);
    }
    notify();
  }
  // Blocks until every body has returned.
  void stop(Mutex& mutex) {
    begin_stop(mutex);
    join();
  }
  bool stopping() const { return stopping_.load(); }

  // Releases `mutex`, blocks until notify() or for `at_most`, and takes `mutex` again. May return
  // early, so the caller rechecks its condition. A change under the same mutex is never missed.
  virtual void wait(Mutex& mutex, Nanos at_most = kUntilNotified) RKV_REQUIRES(mutex) = 0;
  // Ends every wait() that is under way. Does not block.
  virtual void notify() = 0;

 private:
  virtual void join() = 0;

  std::atomic<bool> stopping_{false};
};

// Makes the BackgroundThread of a component.
using MakeBackground = std::function<std::unique_ptr<BackgroundThread>()>;

// A BackgroundThread that runs threads of this process.
std::unique_ptr<BackgroundThread> background_threads();

}  // namespace rkv::server
