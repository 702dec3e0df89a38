#include "client/async/aside.h"

#include <utility>

#include "common/thread.h"

namespace rkv::client {

Aside::~Aside() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status Aside::run(Step step) {
  if (!thread_.joinable()) {
    RKV_ASSIGN_OR_RETURN(thread_, start_without_signals([this] { serve(); }));
  }
  is_idle_ = false;
  {
    const MutexLock lock(mutex_);
    step_ = std::move(step);
  }
  changed_.notify_all();
  return {};
}

void Aside::serve() {
  name_thread("rkv-aside");
  for (;;) {
    Step step;
    {
      const MutexLock lock(mutex_);
      while (!ends_ && !step_)
        changed_.wait(mutex_);
      if (!step_) return;
      step = std::exchange(step_, nullptr);
    }
    Status status = step();
    {
      const MutexLock lock(mutex_);
      result_ = status;
    }
    changed_.notify_all();
    on_end_();
  }
}

bool Aside::has_result() {
  if (is_idle_) return false;
  const MutexLock lock(mutex_);
  return result_.has_value();
}

std::optional<Status> Aside::take_result() {
  if (is_idle_) return std::nullopt;
  const MutexLock lock(mutex_);
  if (!result_) return std::nullopt;
  is_idle_ = true;
  return std::exchange(result_, std::nullopt);
}

void Aside::wait() {
  if (is_idle_) return;
  const MutexLock lock(mutex_);
  while (!result_)
    changed_.wait(mutex_);
  result_.reset();
  is_idle_ = true;
}

}  // namespace rkv::client
