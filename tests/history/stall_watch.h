// Measures how late a runnable thread is woken; other threads of the machine are delayed as much.
//
// Thread safety: one thread uses it; it has one of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "common/clock.h"

namespace rkv::history {

class StallWatch {
 public:
  explicit StallWatch(const Clock& clock) : thread_([this, &clock] { watch(clock); }) {}
  ~StallWatch() { stop(); }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // The longest stall since the start.
  Nanos stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return longest_;
  }

 private:
  void watch(const Clock& clock) {
    while (!stop_) {
      const Nanos before = clock.now();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      longest_ = std::max(longest_, clock.now() - before);
    }
  }
  std::atomic<bool> stop_{false};
  Nanos longest_ = 0;
  std::thread thread_;
};

}  // namespace rkv::history
