#include "server/stepper.h"

#include <algorithm>
#include <chrono>

#include "common/thread.h"

namespace rkv::server {

Stepper::~Stepper() {
  stop();
}

void Stepper::start() {
  thread_ = std::thread([this] { run(); });
}

void Stepper::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Stepper::call() {
  {
    const std::scoped_lock lock(mutex_);
    called_ = true;
  }
  changed_.notify_one();
}

void Stepper::run() {
  name_thread(name_);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    called_ = false;
    lock.unlock();
    const Nanos next = step_();
    lock.lock();
    const Nanos left = std::max<Nanos>(next - clock_.now(), 0);
    changed_.wait_for(lock, std::chrono::nanoseconds(left),
                      [this] { return called_ || stopping_; });
  }
}

}  // namespace rkv::server
