// Waker: ends the sleep of one thread in poll(2) or epoll_wait(2), from any other.
//
//   sleeper: if (waker.consume()) return;
//            epoll_wait(... waker.fd() ...); if it was readable: waker.drain();
//            waker.consume();
//   others:  waker.wake();
//
// Invariants:
//  W1  No wake() is lost, if consume() stands right before the sleep: a wake() before it has left
//      the flag, one after it finds the flag down and writes, which ends the sleep.
//  W2  Many calls of wake() cost one system call until the next consume().
//  W3  The descriptor is drained whenever it is found readable, also when the flag is down: a write
//      may come late, after consume() has taken the flag of the same wake(). Left there, it would
//      end every sleep at once.
//
// Thread safety: wake() any thread; consume() and drain() the sleeper's.
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

  // Once, before anything else. kBusy: no descriptor is left.
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
  // Whether wake() was called since the last time. Without a system call when it was not.
  bool consume() {
    if (!woken_.load(std::memory_order_relaxed)) return false;
    drain();  // first: what a wake() after the exchange writes must stay
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
