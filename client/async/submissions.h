// Operations on their way from any thread to the one that drives the client.
//
// Invariants:
//  SUBM-1  take() returns each pushed operation once, in the order of the pushes. So the operations
//      of one thread stay in order.
//  SUBM-2  A thread announces its sleep by a seq_cst store and then calls is_empty(). A pusher
//      pushes and then loads the announcement. At least one of the two sees the other.
//  SUBM-3  Operations that were pushed before close() are returned by it or by an earlier take().
//      Later pushes are refused.
//
// Thread safety: any thread may call push() and is_empty(), one at a time take() and close().
#pragma once

#include <atomic>

#include "rkv/async_operation.h"

namespace rkv::client {

class Submissions {
 public:
  // Returns false after close().
  bool push(AsyncOperation& operation) {
    AsyncOperation* head = last_.load(std::memory_order_relaxed);
    do {
      if (head == closed()) return false;
      operation.next_ = head;
    } while (!last_.compare_exchange_weak(head, &operation, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
    return true;
  }
  bool is_empty() const {
    const AsyncOperation* const last = last_.load(std::memory_order_seq_cst);
    return last == nullptr || last == closed();
  }
  // Returns the first operation, which leads to the others by next(). Null: there are none.
  AsyncOperation* take() {
    const AsyncOperation* const last = last_.load(std::memory_order_relaxed);
    if (last == nullptr || last == closed()) return nullptr;
    return in_order(last_.exchange(nullptr, std::memory_order_acquire));
  }
  // Like take(), for the last time.
  AsyncOperation* close() {
    AsyncOperation* const last = last_.exchange(closed(), std::memory_order_acquire);
    return last == closed() ? nullptr : in_order(last);
  }
  static AsyncOperation* next(const AsyncOperation& operation) { return operation.next_; }

 private:
  // A mark in the place of an operation: the list is closed.
  AsyncOperation* closed() const {
    return reinterpret_cast<AsyncOperation*>(const_cast<Submissions*>(this));
  }
  static AsyncOperation* in_order(AsyncOperation* newest) {
    AsyncOperation* oldest = nullptr;
    while (newest != nullptr) {
      AsyncOperation* const older = newest->next_;
      newest->next_ = oldest;
      oldest = newest;
      newest = older;
    }
    return oldest;
  }

  std::atomic<AsyncOperation*> last_ = nullptr;
};

}  // namespace rkv::client
