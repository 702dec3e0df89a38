// BackgroundThread: the threads of a part that works beside requests, and how they wait.
// DiskFetcher, WarmUp, Scans, Backups and StoreMaintenance each hold one. A simulation gives them
// fibers instead of threads.
//
//   background->start("rkv-scans", [this] { run(); });
//   ...
//   const MutexLock lock(mutex_);             // in run()
//   while (!stopping_ && asked_.empty()) background->wait(mutex_);
//   ...
//   background->notify();                     // after changing what run() waits for
//   background->join();                       // after setting stopping_ and notify()
//
// Thread safety: wait: the bodies. notify: any thread. start, running, join: the owner.
#pragma once

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
  virtual ~BackgroundThread() = default;
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Runs `body` on a thread until it returns; several bodies may run. `name`: the thread's, at most
  // 15 characters.
  virtual void start(const char* name, std::function<void()> body) = 0;
  // Whether a body was started and not joined.
  virtual bool running() const = 0;
  // Blocks until every body has returned.
  virtual void join() = 0;

  // Releases `mutex`, blocks until notify() or for `at_most`, and takes `mutex` again. May return
  // early, so the caller rechecks its condition. A change under the same mutex is never missed.
  virtual void wait(Mutex& mutex, Nanos at_most = kUntilNotified) RKV_REQUIRES(mutex) = 0;
  // Ends every wait() that is under way. Does not block.
  virtual void notify() = 0;
};

// Makes the BackgroundThread of a part.
using MakeBackground = std::function<std::unique_ptr<BackgroundThread>()>;

// A BackgroundThread that runs threads of this process.
std::unique_ptr<BackgroundThread> background_threads();

}  // namespace rkv::server
