// StopWatch: bounds how long a stop may take. A disk that never answers blocks its callers forever.
//
//   StopWatch watch(kLongestStop, [] { log_error(...); std::_Exit(kExitOther); });
//   server.stop();
//
// If the system refuses a thread, the stop goes on without a bound, and the log says so.
//
// Thread safety: one owner. A thread of the StopWatch calls `too_long` at most once, while the
// owner may still be inside the stop.
#pragma once

#include <functional>
#include <thread>

#include "common/clock.h"
#include "common/mutex.h"

namespace rkv::server {

class StopWatch {
 public:
  StopWatch(Nanos longest, std::function<void()> too_long);
  ~StopWatch();  // the stop is over: cancels the call; blocks until the thread has ended
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  void run(Nanos longest, const std::function<void()>& too_long);

  Mutex mutex_;
  ConditionVariable ended_;
  bool over_ RKV_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rkv::server
