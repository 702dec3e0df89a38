#include "server/program/stop_watch.h"

#include <chrono>
#include <utility>

#include "common/thread.h"

namespace rkv::server {

StopWatch::StopWatch(Nanos longest, std::function<void()> too_long)
    : thread_([this, longest, too_long = std::move(too_long)] { run(longest, too_long); }) {}

StopWatch::~StopWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void StopWatch::run(Nanos longest, const std::function<void()>& too_long) {
  name_thread("rkv-stop");
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return over_; };
  if (ended_.wait_for(lock, std::chrono::nanoseconds(longest), is_over)) return;
  lock.unlock();
  too_long();
}

}  // namespace rkv::server
