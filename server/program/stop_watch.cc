#include "server/program/stop_watch.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "common/log.h"
#include "common/thread.h"

namespace rkv::server {

StopWatch::StopWatch(Nanos longest, std::function<void()> too_long) {
  try {
    thread_ =
        std::thread([this, longest, too_long = std::move(too_long)] { run(longest, too_long); });
  } catch (const std::system_error& refused) {
    log_warn(EventName("stop_not_bounded"),
             "no thread can watch how long the stop takes: it may wait for the disk without end "
             "({})",
             refused.what());
  }
}

StopWatch::~StopWatch() {
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StopWatch::run(Nanos longest, const std::function<void()>& too_long) {
  name_thread("rkv-stop");
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(longest);
  {
    const MutexLock lock(mutex_);
    while (!over_ && ended_.wait_until(mutex_, end)) {
    }
    if (over_) return;
  }
  too_long();
}

}  // namespace rkv::server
