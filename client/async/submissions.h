// Operations on their way from any thread to the one that drives the client.
//
// Invariants:
//  SUBM-1  take() returns each pushed operation once, in the order of the pushes: those of one
//      thread in its order.
//  SUBM-2  A thread announces its sleep by a seq_cst store and then calls is_empty(). A pusher
//      pushes and then loads the announcement. At least one of the two sees the other.
//
// Thread safety: push() and is_empty() any thread, take() one at a time.
#pragma once

#include <atomic>

#include "rkv/async_operation.h"

namespace rkv::client {

class Submissions {
 public:
  void push(AsyncOperation& operation) {
    AsyncOperation* head = last_.load(std::memory_order_relaxed);
    do {
      operation.next_ = head;
    } while (!last_.compare_exchange_weak(head, &operation, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
  }
  bool is_empty() const { return last_.load(std::memory_order_seq_cst) == nullptr; }
  // The first operation, and the others by next(). Null: none.
  AsyncOperation* take() {
    if (last_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    AsyncOperation* newest = last_.exchange(nullptr, std::memory_order_acquire);
    AsyncOperation* oldest = nullptr;
    while (newest != nullptr) {
      AsyncOperation* const older = newest->next_;
      newest->next_ = oldest;
      oldest = newest;
      newest = older;
    }
    return oldest;
  }
  static AsyncOperation* next(const AsyncOperation& operation) { return operation.next_; }

 private:
  std::atomic<AsyncOperation*> last_ = nullptr;
};

}  // namespace rkv::client
