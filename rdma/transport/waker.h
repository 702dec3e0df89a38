// Waker: lets any thread end another thread's sleep in poll(2) or epoll_wait(2).
//
//   sleeper: if (waker.consume()) return;
//            epoll_wait(... waker.fd() ...); if it was readable: waker.drain();
//            waker.consume();
//   others:  waker.wake();
//
// Invariants:
//  WAKER-1  No wake() is lost if consume() is called right before the sleep. A wake() before
//      consume() leaves the flag set. A wake() after it finds the flag clear and writes to the
//      descriptor, which ends the sleep.
//  WAKER-2  Any number of wake() calls cost one system call until the next consume().
//  WAKER-3  The descriptor is drained whenever it is readable, even if the flag is clear. A write
//      may come late, after consume() has cleared the flag set by the same wake(). If that write
//      were left there, every later sleep would end at once.
//
// Thread safety: wake() may be called by any thread; consume() and drain() only by the sleeper.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "rkv/result.h"

namespace rkv::rdma {

class Waker {
 public:
  Waker() = default;
  ~Waker() {
    if (fd_ >= 0) close(fd_);
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Call once, before anything else. kBusy: no descriptor is available.
  Status open() {
    fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd_ < 0) return fail_call(Code::kBusy, "eventfd", errno);
    return {};
  }
  int fd() const { return fd_; }

  void wake() {
    if (woken_.exchange(true, std::memory_order_acq_rel)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  }
  // Returns whether wake() was called since the last consume(). Without a system call if it was
  // not.
  bool consume() {
    if (!woken_.load(std::memory_order_relaxed)) return false;
    // Drain before clearing the flag: a write by a wake() after the exchange must stay.
    drain();
    woken_.exchange(false, std::memory_order_acq_rel);
    return true;
  }
  void drain() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof count);
  }

 private:
  int fd_ = -1;
  std::atomic<bool> woken_ = false;
};

}  // namespace rkv::rdma
