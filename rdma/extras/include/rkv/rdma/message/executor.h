// Executors run coroutines that wait for descriptors, only on the thread that calls poll().
//
//   RKV_ASSIGN_OR_RETURN(std::unique_ptr<EpollExecutor> executor, EpollExecutor::create());
//   Task<void> task = serve(stream);          // co_await stream.read(...)
//   RKV_RETURN_IF_ERROR(run(*executor, deadline, task));
//   // or in the program's own loop, which waits for executor->fd() among others
//   executor->poll();
//   RKV_ASSIGN_OR_RETURN(bool may_sleep, executor->arm());
//
// Invariants:
//   EXEC-1  A waiter is in its executor's list from the suspension of its coroutine until it is
//       resumed or destroyed; its destructor removes it. So no pointer to a coroutine survives it,
//       however it ends.
//   EXEC-2  poll() removes a waiter from the list before resuming it. The resumed coroutine may
//       add, remove and destroy any waiters, itself included.
//   EXEC-3  After arm() returned true, fd() becomes readable when a waiter may continue, when the
//       earliest deadline of a waiter passes, or after wake().
//   EXEC-4  A waiter that cannot be awaited is resumed with the error; the other waiters are
//       unaffected.
//
// Thread safety: one thread at a time, but wake() may be called from any thread. An executor must
// outlive its waiters.
#pragma once

#include <atomic>
#include <concepts>
#include <coroutine>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "rkv/check.h"
#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

class Executor;

// An operation that a coroutine waits for. It lives in the coroutine's frame.
class RKV_EXPORT Waiter {
 public:
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  virtual ~Waiter();

  // The descriptor to wait for after arm() returned true. -1: wait for the executor's wake().
  virtual int fd() const = 0;
  // True if nothing is ready now; fd() then becomes readable at the next event.
  virtual Result<bool> arm() = 0;
  // Called if the executor cannot wait for this waiter: arm() failed, or its descriptor cannot be
  // watched. The waiter keeps the error as its coroutine's result, and its next attempt() returns
  // true.
  virtual void fail(const Error& error) = 0;
  // Tries once. Returns true when the coroutine can continue.
  virtual bool attempt() = 0;
  // The time at which attempt() will return true in any case; nullptr: never.
  virtual const Deadline* deadline() const { return nullptr; }

 protected:
  Waiter() = default;
  // Suspends: executor.poll() resumes `continuation` after attempt() returned true.
  void enlist(Executor& executor, std::coroutine_handle<> continuation);

 private:
  friend class Executor;
  Executor* executor_ = nullptr;
  Waiter* previous_ = nullptr;
  Waiter* next_ = nullptr;
  std::coroutine_handle<> continuation_;
};

class RKV_EXPORT Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor();

  // Tries every waiter once and resumes those that can continue; returns their number. Does not
  // block.
  std::size_t poll();
  // True if no waiter can continue; fd() then becomes readable when one may. A waiter's error is
  // delivered to that waiter only; an error returned here is the executor's own.
  virtual Result<bool> arm() = 0;
  // For poll(2) in the program's own loop. -1: not available, call poll() repeatedly.
  virtual int fd() const = 0;
  // Ends a sleep() and makes fd() readable. Any thread.
  virtual void wake() = 0;
  // Blocks until poll() may have work or the deadline has passed.
  virtual Status sleep(const Deadline& deadline) = 0;
  std::size_t waiters() const { return count_; }

 protected:
  Waiter* first() const { return first_; }
  static Waiter* next(const Waiter& after) { return after.next_; }

 private:
  friend class Waiter;
  void add(Waiter& waiter);
  void remove(Waiter& waiter);
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  Waiter* cursor_ = nullptr;  // next waiter for poll(); advanced by remove()
  std::size_t count_ = 0;
};

// The interface that coroutines need from an executor; a program may implement its own.
template <class E>
concept PollableExecutor = std::derived_from<E, Executor> && requires(E e) {
  { e.poll() } -> std::same_as<std::size_t>;
  { e.arm() } -> std::same_as<Result<bool>>;
  { e.fd() } -> std::same_as<int>;
};

// Polls without sleeping and needs no descriptor: for tests, and for threads that own a processor.
class RKV_EXPORT InlineExecutor final : public Executor {
 public:
  Result<bool> arm() override { return false; }
  int fd() const override { return -1; }
  void wake() override {}
  // Yields the processor once.
  Status sleep(const Deadline& deadline) override;
};

// Sleeps in epoll_wait(2) while no waiter can continue. Deadlines are kept by a timerfd(2).
class RKV_EXPORT EpollExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<EpollExecutor>> create();
  ~EpollExecutor() override;
  Result<bool> arm() override;
  int fd() const override { return poller_; }
  void wake() override;
  Status sleep(const Deadline& deadline) override;

 private:
  EpollExecutor(int poller, int waker, int timer) : poller_(poller), waker_(waker), timer_(timer) {}
  Status watch(int fd);
  Result<bool> arm_timer();
  int poller_;
  int waker_;
  int timer_;
  std::optional<Nanos> timer_at_;  // the deadline that the timer is set for
};
static_assert(PollableExecutor<InlineExecutor> && PollableExecutor<EpollExecutor>);

// The error of an operation that a stop token ended; is_stopped() distinguishes it from a
// deadline's.
inline constexpr const char* kStopCall = "std::stop_token";
inline Error stopped() {
  return {.code = Code::kTimeout, .call = kStopCall, .text = "the operation was stopped"};
}
inline bool is_stopped(const Error& error) {
  // Compares the text: the library and the program may each have their own copy of the literal.
  return error.code == Code::kTimeout && error.call != nullptr &&
         std::string_view(error.call) == kStopCall;
}

// How long a coroutine waits: until a deadline or a stop request, or without end.
//
//   co_await stream.read(buffer, deadline);
//   co_await stream.read(buffer, stop_token);
//   co_await stream.read(buffer, {deadline, stop_token});
class Until {
 public:
  Until() = default;
  // Implicit, so that a wait takes either as its last argument.
  // NOLINTBEGIN(google-explicit-constructor)
  Until(std::stop_token stop) : stop_(std::move(stop)) {}
  Until(const Deadline& deadline, std::stop_token stop = {})
      : deadline_(deadline), stop_(std::move(stop)) {}
  // NOLINTEND(google-explicit-constructor)

  const Deadline* deadline() const { return deadline_ ? &*deadline_ : nullptr; }
  const std::stop_token& stop() const { return stop_; }
  // The error that ends the wait now, or nothing. is_stopped() tells the two apart.
  std::optional<Error> over() const {
    if (stop_.stop_requested()) return stopped();
    if (deadline_ && deadline_->passed()) {
      return Error{.code = Code::kTimeout, .text = "the deadline of the wait passed"};
    }
    return std::nullopt;
  }

 private:
  std::optional<Deadline> deadline_;
  std::stop_token stop_;
};

// Wakes a waiter when its stop token is triggered, from any thread. It lives in the coroutine's
// frame; its destructor waits for a stop request that another thread is executing.
class StopWatch {
 public:
  StopWatch() = default;
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;
  void start(const std::stop_token& token, Executor& executor) {
    if (token.stop_possible()) callback_.emplace(token, Notify{&stopped_, &executor});
  }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

 private:
  struct Notify {
    std::atomic<bool>* flag;
    Executor* executor;
    void operator()() const noexcept {
      flag->store(true, std::memory_order_release);  // before the wake-up, which leads to the read
      executor->wake();
    }
  };
  std::atomic<bool> stopped_ = false;
  std::optional<std::stop_callback<Notify>> callback_;
};

// A waiter that waits until a deadline or a stop request at most.
class RKV_EXPORT LimitedWaiter : public Waiter {
 public:
  const Deadline* deadline() const final { return until_.deadline(); }

 protected:
  explicit LimitedWaiter(Until until) : until_(std::move(until)) {}
  void suspend(Executor& executor, std::coroutine_handle<> continuation) {
    enlist(executor, continuation);
    watch_.start(until_.stop(), executor);
  }
  // The error that ends the wait now, or nothing.
  std::optional<Error> over() const {
    if (watch_.stopped()) return stopped();
    return until_.over();
  }

 private:
  Until until_;
  StopWatch watch_;  // its callback uses this field and the executor only
};

}  // namespace rkv::rdma
