#include "client/async/waiters.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "rkv/clock.h"

namespace rkv {

namespace {
// The waits of std::atomic have no time limit.
void futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* longest) {
  syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, longest, nullptr, 0);
}
}  // namespace

void wake_sleeper_on(std::atomic<std::uint32_t>* word) {
  futex(word, FUTEX_WAKE, 1, nullptr);
}

namespace client {

void Waiter::sleep(std::chrono::nanoseconds longest) {
  const timespec limit{.tv_sec = longest.count() / kNanosPerSecond,
                       .tv_nsec = longest.count() % kNanosPerSecond};
  if ((word_.fetch_or(kSleeps, std::memory_order_acq_rel) | kSleeps) == kSleeps)
    futex(&word_, FUTEX_WAIT, kSleeps, &limit);
  word_.fetch_and(~kSleeps, std::memory_order_relaxed);
}

void Waiters::pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

void Waiters::call_first() {
  const MutexLock lock(mutex_);
  while (first_ != nullptr && !is_called_) {
    Waiter& waiter = *first_;
    unlink(waiter);
    if (waiter.ended()) continue;  // its thread is about to leave
    is_called_ = true;
    waiter.set(Waiter::kCalled);
  }
}

void Waiters::unlink(Waiter& waiter) {
  (waiter.previous_ != nullptr ? waiter.previous_->next_ : first_) = waiter.next_;
  (waiter.next_ != nullptr ? waiter.next_->previous_ : last_) = waiter.previous_;
  waiter.next_ = waiter.previous_ = nullptr;
  waiter.is_listed_ = false;
  count_.fetch_sub(1, std::memory_order_relaxed);
}

void Waiters::leave(Waiter& waiter) {
  bool was_called = false;
  {
    const MutexLock lock(mutex_);  // WAIT-3
    if (waiter.is_listed_) unlink(waiter);
    was_called = waiter.take_call();
    if (was_called) is_called_ = false;
  }
  if (was_called) call_one();  // WAIT-2
}

bool Waiters::Place::enter() {
  const MutexLock lock(waiters_.mutex_);
  if (waiter_.is_listed_) return false;
  if (waiter_.take_call()) waiters_.is_called_ = false;  // a thread drives, and calls at its end
  waiter_.previous_ = waiters_.last_;
  (waiters_.last_ != nullptr ? waiters_.last_->next_ : waiters_.first_) = &waiter_;
  waiters_.last_ = &waiter_;
  waiter_.is_listed_ = has_entered_ = true;
  waiters_.count_.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

void Waiters::Place::drives() {
  if (!has_entered_) return;
  const MutexLock lock(waiters_.mutex_);
  if (waiter_.is_listed_) waiters_.unlink(waiter_);
  if (waiter_.take_call()) waiters_.is_called_ = false;
}

}  // namespace client
}  // namespace rkv
