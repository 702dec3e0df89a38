#include "server/background/repeated_step.h"

namespace rkv::server {

void RepeatedStep::start() {
  background_->start(name_, [this] { run(); });
}

void RepeatedStep::call() {
  {
    const MutexLock lock(mutex_);
    called_ = true;
  }
  background_->notify();
}

void RepeatedStep::run() {
  MutexLock lock(mutex_);
  while (!background_->stopping()) {
    called_ = false;
    lock.unlock();
    const Nanos next = step_();
    lock.lock();
    while (!called_ && !background_->stopping()) {
      const Nanos left = next - clock_.now();
      if (left <= 0) break;
      background_->wait(mutex_, left);
    }
  }
}

}  // namespace rkv::server
