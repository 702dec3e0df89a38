// GroupTask: a client's request to a replicated group, while it is under way.
//
// Thread safety: finish(): one thread, once. The others: any thread.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "rkv/result.h"

namespace rkv::server {

class GroupTask {
 public:
  // `finished` is called at the end of finish() and must not block.
  explicit GroupTask(std::function<void()> finished) : finished_(std::move(finished)) {}
  // An error's text must be static.
  void finish(const Status& status) {
    status_ = status;
    done_.store(true, std::memory_order_release);
    finished_();
  }
  bool done() const { return done_.load(std::memory_order_acquire); }
  const Status& status() const { return status_; }  // REQUIRES: done()

 private:
  const std::function<void()> finished_;
  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace rkv::server
