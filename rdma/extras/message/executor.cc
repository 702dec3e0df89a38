#include "rkv/rdma/message/executor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "rkv/rdma/error.h"

namespace rkv::rdma {

Waiter::~Waiter() {
  if (executor_ != nullptr) executor_->remove(*this);
}

void Waiter::enlist(Executor& executor, std::coroutine_handle<> continuation) {
  RKV_CHECK(executor_ == nullptr, "the waiter is waiting already");
  continuation_ = continuation;
  executor.add(*this);
}

Executor::~Executor() {
  RKV_CHECK(count_ == 0, "an executor is destroyed while coroutines wait in it");
}

void Executor::add(Waiter& waiter) {
  waiter.executor_ = this;
  waiter.previous_ = last_;
  waiter.next_ = nullptr;
  (last_ == nullptr ? first_ : last_->next_) = &waiter;
  last_ = &waiter;
  ++count_;
}

void Executor::remove(Waiter& waiter) {
  if (cursor_ == &waiter) cursor_ = waiter.next_;
  (waiter.previous_ == nullptr ? first_ : waiter.previous_->next_) = waiter.next_;
  (waiter.next_ == nullptr ? last_ : waiter.next_->previous_) = waiter.previous_;
  waiter.executor_ = nullptr;
  --count_;
}

std::size_t Executor::poll() {
  std::size_t resumed = 0;
  cursor_ = first_;
  // Waiters added during this call get their turn at the next one: two coroutines that feed each
  // other must not keep the caller here.
  for (std::size_t left = count_; left != 0 && cursor_ != nullptr; --left) {
    Waiter& waiter = *cursor_;
    cursor_ = waiter.next_;
    if (!waiter.attempt()) continue;
    const std::coroutine_handle<> continuation = waiter.continuation_;
    remove(waiter);
    ++resumed;
    continuation.resume();  // may destroy the waiter
  }
  cursor_ = nullptr;
  return resumed;
}

Status InlineExecutor::sleep(const Deadline& /*deadline*/) {
  std::this_thread::yield();
  return {};
}

Result<std::unique_ptr<EpollExecutor>> EpollExecutor::create() {
  const int poller = epoll_create1(EPOLL_CLOEXEC);
  RKV_RETURN_IF_ERROR(from_minus_one("epoll_create1", poller));
  const int waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int waker_errno = errno;
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  // The object owns the descriptors from here, also if one is invalid.
  std::unique_ptr<EpollExecutor> out(new EpollExecutor(poller, waker, timer));
  RKV_RETURN_IF_ERROR(from_minus_one("timerfd_create", timer));
  if (waker < 0) return verb_error("eventfd", waker_errno);
  for (const int fd : {waker, timer}) {
    epoll_event event{};
    event.events = EPOLLIN;
    RKV_RETURN_IF_ERROR(from_minus_one("epoll_ctl", epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)));
  }
  return out;
}

EpollExecutor::~EpollExecutor() {
  ::close(poller_);
  if (waker_ >= 0) ::close(waker_);
  if (timer_ >= 0) ::close(timer_);
}

// False if a deadline has passed.
Result<bool> EpollExecutor::arm_timer() {
  const Deadline* earliest = nullptr;
  for (const Waiter* waiter = first(); waiter != nullptr; waiter = next(*waiter)) {
    const Deadline* const own = waiter->deadline();
    if (own != nullptr && (earliest == nullptr || own->at() < earliest->at())) earliest = own;
  }
  std::uint64_t expired = 0;
  if (timer_at_ && ::read(timer_, &expired, sizeof expired) > 0) timer_at_.reset();
  // The timer of an earlier waiter may still be set: its expiry only costs one round.
  if (earliest == nullptr || timer_at_ == earliest->at()) return true;
  const int left_ms = earliest->left_ms();
  if (left_ms == 0) return false;
  itimerspec when{};
  when.it_value = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * kNanosPerMs};
  RKV_RETURN_IF_ERROR(
      from_minus_one("timerfd_settime", timerfd_settime(timer_, 0, &when, nullptr)));
  timer_at_ = earliest->at();
  return true;
}

// Watches for one wake-up only: a descriptor without a waiter must not wake repeatedly. A closed
// descriptor leaves the epoll set by itself, and its number may be reused.
Status EpollExecutor::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  if (epoll_ctl(poller_, EPOLL_CTL_MOD, fd, &event) == 0) return {};
  if (errno != ENOENT) return verb_error("epoll_ctl", errno);
  return from_minus_one("epoll_ctl", epoll_ctl(poller_, EPOLL_CTL_ADD, fd, &event));
}

Result<bool> EpollExecutor::arm() {
  std::uint64_t old = 0;
  // Before the waiters are armed: a wake() after this line leaves the descriptor readable.
  if (::read(waker_, &old, sizeof old) > 0) return false;
  RKV_ASSIGN_OR_RETURN(const bool in_time, arm_timer());
  if (!in_time) return false;
  for (Waiter* waiter = first(); waiter != nullptr; waiter = next(*waiter)) {
    Result<bool> quiet = waiter->arm();
    if (quiet && *quiet && waiter->fd() >= 0) {
      if (const Status watched = watch(waiter->fd()); !watched) {
        quiet = std::unexpected(watched.error());
      }
    }
    if (!quiet) waiter->fail(quiet.error());
    if (!quiet || !*quiet) return false;
  }
  return true;
}

void EpollExecutor::wake() {
  const std::uint64_t one = 1;
  std::ignore = ::write(waker_, &one, sizeof one);  // fails only if it is readable anyway
}

Status EpollExecutor::sleep(const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(const bool quiet, arm());
  if (!quiet) return {};
  epoll_event event{};
  if (epoll_wait(poller_, &event, 1, deadline.left_ms()) < 0 && errno != EINTR) {
    return verb_error("epoll_wait", errno);
  }
  return {};
}

}  // namespace rkv::rdma
