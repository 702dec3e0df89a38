#include "server/background/store_maintenance.h"

namespace rkv::server {

StoreMaintenance::~StoreMaintenance() {
  stop();
}

void StoreMaintenance::start() {
  background_->start(name_, [this] { run(); });
}

void StoreMaintenance::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  background_->notify();
  background_->join();
}

void StoreMaintenance::call() {
  {
    const MutexLock lock(mutex_);
    called_ = true;
  }
  background_->notify();
}

void StoreMaintenance::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    called_ = false;
    lock.unlock();
    const Nanos next = step_();
    lock.lock();
    while (!called_ && !stopping_) {
      const Nanos left = next - clock_.now();
      if (left <= 0) break;
      background_->wait(mutex_, left);
    }
  }
}

}  // namespace rkv::server
