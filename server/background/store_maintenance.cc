#include "server/background/store_maintenance.h"

namespace rkv::server {

void StoreMaintenance::start() {
  background_->start(name_, [this] { run(); });
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
