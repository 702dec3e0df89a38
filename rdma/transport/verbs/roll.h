// The list of the queues of a transport, used to report a failed queue pair to its queue.
//
// Thread safety: any thread. An Entry must end before its queue does.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/mutex.h"

namespace rkv::rdma::verbs {

class VerbsQueue;

class Roll {
 public:
  class Entry {
   public:
    Entry() = default;
    Entry(std::shared_ptr<Roll> roll, VerbsQueue* queue) : roll_(std::move(roll)), queue_(queue) {}
    Entry(Entry&& other) noexcept : roll_(std::move(other.roll_)), queue_(other.queue_) {}
    Entry& operator=(Entry&& other) noexcept {
      std::swap(roll_, other.roll_);
      std::swap(queue_, other.queue_);
      return *this;
    }
    ~Entry() {
      if (roll_ != nullptr) roll_->leave(queue_);
    }

   private:
    std::shared_ptr<Roll> roll_;
    VerbsQueue* queue_ = nullptr;
  };

  static Entry enter(const std::shared_ptr<Roll>& roll, VerbsQueue& queue) {
    const MutexLock lock(roll->mutex_);
    roll->queues_.push_back(&queue);
    return {roll, &queue};
  }
  template <class Visit>
  void for_each(Visit visit) {
    const MutexLock lock(mutex_);
    for (VerbsQueue* const queue : queues_)
      visit(*queue);
  }

 private:
  void leave(VerbsQueue* queue) {
    const MutexLock lock(mutex_);
    std::erase(queues_, queue);
  }
  Mutex mutex_;
  std::vector<VerbsQueue*> queues_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::rdma::verbs
