#include "server/expirer.h"

#include <algorithm>
#include <chrono>

namespace rkv::server {

Expirer::Expirer(Store& store, const Clock& clock) : store_(store), clock_(clock) {
  store_.on_earlier_expiry([this] { call(); });
}

Expirer::~Expirer() {
  stop();
}

void Expirer::start() {
  store_.expire();
  while (store_.has_expired()) {  // more than the commit log has room for at a time
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    store_.expire();
  }
  thread_ = std::thread([this] { run(); });
}

void Expirer::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Expirer::call() {
  {
    const std::scoped_lock lock(mutex_);
    called_ = true;
  }
  changed_.notify_one();
}

void Expirer::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    called_ = false;
    lock.unlock();
    const Nanos next = store_.expire();
    lock.lock();
    const Nanos left = std::max<Nanos>(next - clock_.now(), 0);
    changed_.wait_for(lock, std::chrono::nanoseconds(left),
                      [this] { return called_ || stopping_; });
  }
}

}  // namespace rkv::server
