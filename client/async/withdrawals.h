// Operations that threads have withdrawn. The driving thread looks at these only, not at all that
// are in flight.
//
// Invariants:
//  WITHDRAW-1  An operation is in the list at most from add() until on_end() has returned. add()
//      after on_end() does nothing. So each operation in the list still exists.
//  WITHDRAW-2  add() notes the operation before it returns, as SUBM-2 requires of a push.
//
// Thread safety: any thread, but one at a time may call pop() and on_end().
#pragma once

#include <atomic>

#include "common/mutex.h"
#include "rkv/async_operation.h"

namespace rkv::client {

class Withdrawals {
 public:
  // Does nothing if the operation has ended, or was withdrawn before.
  void add(AsyncOperation& operation) {
    const MutexLock lock(mutex_);
    Fate open = Fate::kOpen;
    if (!operation.fate_.compare_exchange_strong(open, Fate::kWithdrawn)) return;
    operation.withdrawn_ = {.next = nullptr, .previous = last_};
    (last_ == nullptr ? first_ : last_->withdrawn_.next) = &operation;
    last_ = &operation;
    operation.is_listed_withdrawn_ = true;
    has_any_.store(true, std::memory_order_seq_cst);
  }
  bool has_any() const { return has_any_.load(std::memory_order_seq_cst); }
  // Removes and returns the operation that was added first. Null: there is none.
  AsyncOperation* pop() {
    if (!has_any_.load(std::memory_order_relaxed)) return nullptr;
    const MutexLock lock(mutex_);
    AsyncOperation* const operation = first_;
    if (operation != nullptr) unlink(*operation);
    has_any_.store(first_ != nullptr, std::memory_order_seq_cst);
    return operation;
  }
  // Call it before the submitter may reuse the operation's memory. Takes a lock only if the
  // operation was withdrawn.
  void on_end(AsyncOperation& operation) {
    if (operation.fate_.exchange(Fate::kEnded, std::memory_order_acq_rel) != Fate::kWithdrawn)
      return;
    const MutexLock lock(mutex_);
    if (operation.is_listed_withdrawn_) unlink(operation);
  }
  static bool has(const AsyncOperation& operation) {
    return operation.fate_.load(std::memory_order_relaxed) == Fate::kWithdrawn;
  }

 private:
  using Fate = AsyncOperation::Fate;

  void unlink(AsyncOperation& operation) RKV_REQUIRES(mutex_) {
    AsyncOperation* const next = operation.withdrawn_.next;
    AsyncOperation* const previous = operation.withdrawn_.previous;
    (previous == nullptr ? first_ : previous->withdrawn_.next) = next;
    (next == nullptr ? last_ : next->withdrawn_.previous) = previous;
    operation.is_listed_withdrawn_ = false;
  }

  std::atomic<bool> has_any_ = false;  // may be true while the list is empty
  Mutex mutex_;
  AsyncOperation* first_ RKV_GUARDED_BY(mutex_) = nullptr;
  AsyncOperation* last_ RKV_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace rkv::client
