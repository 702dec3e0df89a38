// Bounds how long a stop may take: a disk that never answers keeps its callers for good.
//
//   StopWatch watch(kLongestStop, [] { log_error(...); std::_Exit(kExitOther); });
//   server.stop();
//
// Thread safety: one owner. `too_long` is called at most once, by a thread of its own, while the
// owner may still be inside the stop.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "common/clock.h"

namespace rkv::server {

class StopWatch {
 public:
  StopWatch(Nanos longest, std::function<void()> too_long);
  ~StopWatch();  // the stop is over
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  void run(Nanos longest, const std::function<void()>& too_long);

  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace rkv::server
