#include "server/grower.h"

#include <chrono>

#include "common/log.h"

namespace rkv::server {

namespace {
constexpr std::chrono::seconds kRetry{1};
}

Grower::Grower(Store& store) : store_(store) {
  store_.on_low_memory([this] { call(); });
}

Grower::~Grower() {
  stop();
}

void Grower::start() {
  thread_ = std::thread([this] { run(); });
}

void Grower::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Grower::call() {
  {
    const std::scoped_lock lock(mutex_);
    called_ = true;
  }
  changed_.notify_one();
}

void Grower::run() {
  bool told = false;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [this] { return called_ || stopping_; });
    if (stopping_) return;
    called_ = false;
    lock.unlock();
    const auto grown = store_.grow();
    if (!grown && !told) log_warn("the store cannot grow: {}", to_string(grown.error()));
    told = !grown;
    lock.lock();
    if (grown) continue;
    changed_.wait_for(lock, kRetry, [this] { return stopping_; });
    called_ = true;
  }
}

}  // namespace rkv::server
