// Threads that wait for operations of a client while another thread drives it. When the driver
// leaves, it calls one of them to drive.
//
// Invariants:
//  WAIT-1  If a waiter is in the list when a driver has left, then a thread drives, or one that was
//      called will try to. A thread that enters the list tries to drive after that. A driver that
//      leaves looks at the list after that, by call_one(). So one of the two sees the other.
//  WAIT-2  A thread that was called drives, or calls the next one: its own operation may have ended
//      meanwhile. Until it does so, no other thread is called.
//  WAIT-3  A waiter that was ever in the list is destroyed only after leave(), which takes the
//      list's mutex. So no entry of the list refers to a destroyed waiter.
//
// Thread safety: any thread; a Place belongs to one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "common/mutex.h"
#include "rkv/async_operation.h"

namespace rkv::client {

class Waiters {
 public:
  Waiters() = default;
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;

  // Call it after the turn of a driver.
  void call_one() {
    if (count_.load(std::memory_order_seq_cst) != 0) call_first();
  }

  // A thread's place among those that wait. The thread may enter the list or not.
  class Place {
   public:
    Place(Waiters& waiters, Waiter& waiter) : waiters_(waiters), waiter_(waiter) {}
    ~Place() {
      if (has_entered_) waiters_.leave(waiter_);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Enters the list as its last entry. Returns false if the thread is in the list already.
    bool enter();
    // Spins for a few microseconds, until the operation has ended or `is_free()` is true.
    template <class IsFree>
    void spin(IsFree is_free) const;
    // Sleeps until the operation has ended, this thread was called, or `longest` has passed. May
    // return earlier.
    void sleep(std::chrono::nanoseconds longest) { waiter_.sleep(longest); }
    // Notes that this thread drives, so it needs no call.
    void drives();

   private:
    Waiters& waiters_;
    Waiter& waiter_;
    bool has_entered_ = false;
  };

 private:
  // Looks of a spin, some microseconds. Longer spins take the processor from the thread that
  // drives.
  static constexpr int kSpins = 200;
  static void pause();

  void call_first();
  void unlink(Waiter& waiter) RKV_REQUIRES(mutex_);
  void leave(Waiter& waiter);

  std::atomic<std::uint32_t> count_ = 0;  // waiters in the list
  Mutex mutex_;
  Waiter* first_ RKV_GUARDED_BY(mutex_) = nullptr;
  Waiter* last_ RKV_GUARDED_BY(mutex_) = nullptr;
  bool is_called_ RKV_GUARDED_BY(mutex_) = false;  // a waiter was called, and has not answered
};

template <class IsFree>
void Waiters::Place::spin(IsFree is_free) const {
  // Looks seldom at the word that the driver writes: each look takes the cache line away from the
  // driver.
  for (int i = 1; i <= kSpins && !waiter_.ended() && (i % 8 != 0 || !is_free()); ++i)
    pause();
}

}  // namespace rkv::client
