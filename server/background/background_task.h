// BackgroundTask: work that a background thread does for a request. Load, ScanTask and BackupTask
// are tasks.
//
// Thread safety: finish: one thread, once. done: any thread. All others: any thread that has seen
// done().
#pragma once

#include <atomic>
#include <optional>

#include "rkv/result.h"

namespace rkv::server {

class BackgroundTask {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  // REQUIRES: done().
  const std::optional<Error>& failure() const { return failure_; }
  // Ends the task, and publishes all that the thread has written before.
  void finish(const Status& status) {
    if (!status) failure_ = status.error();
    done_.store(true, std::memory_order_release);
  }

 protected:
  ~BackgroundTask() = default;

 private:
  std::optional<Error> failure_;  // written before done_
  std::atomic<bool> done_{false};
};

}  // namespace rkv::server
