// Threads that wait for operations of a client which another thread drives. When the driver leaves,
// it calls one of them to drive.
//
// Invariants:
//  WAIT-1  If a waiter is in the list when a driver has left, then a thread drives, or one that was
//      called will try to. Who enters the list tries to drive after that. Who leaves the client
//      looks at the list after that, by call_one(). So one of the two sees the other.
//  WAIT-2  A thread that was called drives, or calls the next one: its operation may have ended
//      meanwhile.
//      Until it does, no other one is called.
//  WAIT-3  A waiter that was ever in the list is left only under the list's mutex: nobody in the
//      list refers to one that is gone.
//
// Thread safety: any thread; a Place belongs to one.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/mutex.h"
#include "rkv/async_operation.h"

namespace rkv::client {

class Waiters {
 public:
  Waiters() = default;
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;

  // After the turn of a driver.
  void call_one() {
    if (count_.load(std::memory_order_seq_cst) != 0) call_first();
  }

  // A thread's place among those that wait. Entering is up to it.
  class Place {
   public:
    Place(Waiters& waiters, Waiter& waiter) : waiters_(waiters), waiter_(waiter) {}
    ~Place() {
      if (has_entered_) waiters_.leave(waiter_);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // The last in the list, if it is not there. Returns false if it is.
    bool enter();
    // Looks for a few microseconds whether the operation has ended or `is_free()`.
    template <class IsFree>
    void spin(IsFree is_free) const;
    // Sleeps until the operation has ended, or this thread was called.
    void sleep() { waiter_.sleep(); }
    // This thread drives: it needs no call.
    void drives();

   private:
    Waiters& waiters_;
    Waiter& waiter_;
    bool has_entered_ = false;
  };

 private:
  // Some microseconds. Longer spins take the processor from the thread that drives.
  static constexpr int kSpins = 200;
  static void pause();

  void call_first();
  void unlink(Waiter& waiter) RKV_REQUIRES(mutex_);
  void leave(Waiter& waiter);

  std::atomic<std::uint32_t> count_ = 0;  // in the list
  Mutex mutex_;
  Waiter* first_ RKV_GUARDED_BY(mutex_) = nullptr;
  Waiter* last_ RKV_GUARDED_BY(mutex_) = nullptr;
  bool is_called_ RKV_GUARDED_BY(mutex_) = false;  // a waiter was, and has not answered
};

template <class IsFree>
void Waiters::Place::spin(IsFree is_free) const {
  // Seldom at what the driver writes: a look takes the cache's line away from it.
  for (int i = 1; i <= kSpins && !waiter_.ended() && (i % 8 != 0 || !is_free()); ++i)
    pause();
}

}  // namespace rkv::client
