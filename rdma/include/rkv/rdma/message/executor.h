// What runs coroutines that wait for descriptors: on the thread that calls poll(), and on no other.
//
//   EpollExecutor executor = ...;
//   Task<void> task = serve(stream);          // co_await stream.read(...)
//   RKV_RETURN_IF_ERROR(run(executor, deadline, task));
//   // or in a loop of the program's own, which waits for executor.fd() among others
//   executor.poll();
//   RKV_ASSIGN_OR_RETURN(bool may_sleep, executor.arm());
//
// Invariants:
//   E1. A waiter is in the list of its executor from the moment its coroutine is suspended until it
//       is resumed or destroyed; its destructor takes it out. So the end of a coroutine, by any
//       way, leaves nothing that points to it.
//   E2. poll() resumes a waiter after it has taken it out of the list, and may be surprised by
//       nothing: what is resumed may add, remove and destroy any waiters, itself included.
//   E3. When arm() gave true, fd() becomes readable when a waiter may go on, or wake() is called.
//   E4. A waiter that cannot be waited for is resumed with the error; the others do not notice.
//
// Thread safety: one thread at a time; wake() alone may be called by any thread. An executor lives
// longer than the waiters in it.
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

// An operation that a coroutine waits for. Lives in the coroutine's frame.
class RKV_EXPORT Waiter {
 public:
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  virtual ~Waiter();

  // Waits for `fd` when arm() gave true. -1: the executor's own wake() tells.
  virtual int fd() const = 0;
  // True when nothing is there; the descriptor tells of what comes.
  virtual Result<bool> arm() = 0;
  // The executor cannot wait for this one: arm() failed, or its descriptor cannot be watched. It
  // keeps the error as its coroutine's answer, and the next attempt() gives true.
  virtual void fail(const Error& error) = 0;
  // Tries once. True when the coroutine may go on.
  virtual bool attempt() = 0;

 protected:
  Waiter() = default;
  // Suspends: `continuation` is resumed by executor.poll() after attempt() gave true.
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

  // Tries every waiter once and resumes those that can go on; returns how many. Does not block.
  std::size_t poll();
  // True when no waiter can go on, and fd() tells when one may. What goes wrong with a waiter is
  // that waiter's answer and no other's; an error here is the executor's own.
  virtual Result<bool> arm() = 0;
  // For poll(2) in a loop of the program's; -1: there is none, call poll() again and again.
  virtual int fd() const = 0;
  // Makes poll() worth a call, from any thread.
  virtual void wake() = 0;
  // Blocks until poll() is worth a call or the deadline has passed.
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
  Waiter* cursor_ = nullptr;  // where poll() goes on; moved by remove()
  std::size_t count_ = 0;
};

// Enough for one's own: what the coroutines need of an executor.
template <class E>
concept PollableExecutor = std::derived_from<E, Executor> && requires(E e) {
  { e.poll() } -> std::same_as<std::size_t>;
  { e.arm() } -> std::same_as<Result<bool>>;
  { e.fd() } -> std::same_as<int>;
};

// Polls, never sleeps longer than a moment, and needs no descriptor: for tests, and for threads
// that have a processor to themselves.
class RKV_EXPORT InlineExecutor final : public Executor {
 public:
  Result<bool> arm() override { return false; }
  int fd() const override { return -1; }
  void wake() override {}
  // Gives the processor away once.
  Status sleep(const Deadline& deadline) override;
};

// Sleeps in epoll_wait(2) while nothing can be done.
class RKV_EXPORT EpollExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<EpollExecutor>> create();
  ~EpollExecutor() override;
  Result<bool> arm() override;
  int fd() const override { return poller_; }
  void wake() override;
  Status sleep(const Deadline& deadline) override;

 private:
  EpollExecutor(int poller, int waker) : poller_(poller), waker_(waker) {}
  Status watch(int fd);
  int poller_;
  int waker_;
};
static_assert(PollableExecutor<InlineExecutor> && PollableExecutor<EpollExecutor>);

// The error of an operation that a stop token ended; how to tell it from a deadline.
inline constexpr const char* kStopCall = "std::stop_token";
inline Error stopped() {
  return {.code = Code::kTimeout, .call = kStopCall, .text = "the operation was stopped"};
}
inline bool is_stopped(const Error& error) {
  // By its text: the library and the program may each have the literal at a place of their own.
  return error.code == Code::kTimeout && error.call != nullptr &&
         std::string_view(error.call) == kStopCall;
}

// Tells a waiter, from whatever thread, that it is to be stopped. In the coroutine's frame too; the
// destructor waits for a request that is just being made by another thread.
class StopWatch {
 public:
  StopWatch() = default;
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;
  void start(const std::stop_token& token, Executor& executor) {
    if (token.stop_possible()) callback_.emplace(token, Tell{&stopped_, &executor});
  }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

 private:
  struct Tell {
    std::atomic<bool>* flag;
    Executor* executor;
    void operator()() const noexcept {
      flag->store(true, std::memory_order_release);  // before the wake-up that makes it be read
      executor->wake();
    }
  };
  std::atomic<bool> stopped_ = false;
  std::optional<std::stop_callback<Tell>> callback_;
};

}  // namespace rkv::rdma
