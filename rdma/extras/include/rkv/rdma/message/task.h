// A coroutine that returns a value. It starts when awaited or run, and resumes the awaiting
// coroutine.
//
//   Task<Result<std::size_t>> read_all(Stream<T>& stream, MutableBytes into) {
//     std::size_t length = 0;
//     while (length < into.size()) {
//       auto got = co_await stream.read(into.subspan(length));
//       if (!got || *got == 0) co_return got ? Result<std::size_t>(length) : got;
//       length += *got;
//     }
//     co_return length;
//   }
//   auto length = run_one(executor, deadline, read_all(stream, buffer));
//
// RKV_CO_RETURN_IF_ERROR and RKV_CO_ASSIGN_OR_RETURN are the macros of rkv/result.h for coroutines.
//
// Destroying a Task destroys its suspended coroutine and the coroutines that it awaits: their
// waiters leave their executor (executor.h, EXEC-1). Cost: one allocation per coroutine, none per
// await. An exception ends the process: this library throws none.
//
// Thread safety: one thread at a time.
#pragma once

#include <concepts>
#include <coroutine>
#include <exception>
#include <expected>
#include <optional>
#include <utility>

#include "rkv/check.h"
#include "rkv/rdma/message/executor.h"

namespace rkv::rdma {

template <class T>
class Task;

namespace detail {

class TaskPromiseBase {
 public:
  std::suspend_always initial_suspend() const noexcept { return {}; }
  struct Final {
    bool await_ready() const noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> self) const noexcept {
      const std::coroutine_handle<> next = self.promise().continuation_;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  Final final_suspend() const noexcept { return {}; }
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  void continue_with(std::coroutine_handle<> continuation) { continuation_ = continuation; }

 private:
  std::coroutine_handle<> continuation_;
};

template <class T>
class TaskPromise : public TaskPromiseBase {
 public:
  Task<T> get_return_object();
  template <class U>
    requires std::constructible_from<T, U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
};

template <>
class TaskPromise<void> : public TaskPromiseBase {
 public:
  Task<void> get_return_object();
  void return_void() const noexcept {}
  void take() const {}
};

}  // namespace detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), started_(other.started_) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(started_, other.started_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // Starts the task; does nothing if it was started before.
  void start() {
    RKV_CHECK(handle_ != nullptr, "the task was moved from");
    if (!std::exchange(started_, true)) handle_.resume();
  }
  bool done() const {
    RKV_CHECK(handle_ != nullptr, "the task was moved from");
    return handle_.done();
  }
  // Returns the result. REQUIRES: done(), and only one call.
  T take() {
    RKV_CHECK(done(), "take() needs a task that is done");
    return handle_.promise().take();
  }

  // co_await std::move(task)
  auto operator co_await() && {
    struct Awaiter {
      Handle handle;
      bool await_ready() const noexcept { return handle.done(); }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> continuation) const noexcept {
        handle.promise().continue_with(continuation);
        return handle;
      }
      T await_resume() const { return handle.promise().take(); }
    };
    RKV_CHECK(handle_ != nullptr, "the task was moved from");
    RKV_CHECK(!std::exchange(started_, true), "a task that was started cannot be awaited");
    return Awaiter{handle_};
  }

 private:
  friend promise_type;
  explicit Task(Handle handle) : handle_(handle) {}
  Handle handle_;
  bool started_ = false;
};

namespace detail {
template <class T>
Task<T> TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}
}  // namespace detail

// Runs the tasks concurrently until all are done. Blocks. kTimeout: the deadline passed first; any
// other error is the executor's own. After an error the tasks keep their state: run them again or
// destroy them.
template <PollableExecutor E, class... T>
Status run(E& executor, const Deadline& deadline, Task<T>&... tasks) {
  (tasks.start(), ...);
  while (!(tasks.done() && ...)) {
    const bool moved = executor.poll() != 0;
    if (moved && (tasks.done() && ...)) break;
    // Checked every round: tasks may feed each other endlessly.
    if (deadline.passed())
      return fail(Code::kTimeout, "the deadline passed before the tasks ended");
    if (!moved) RKV_RETURN_IF_ERROR(executor.sleep(deadline));
  }
  return {};
}

// Runs one task whose result type is Result<U>.
template <PollableExecutor E, class T>
T run_one(E& executor, const Deadline& deadline, Task<T> task) {
  RKV_RETURN_IF_ERROR(run(executor, deadline, task));
  return task.take();
}

}  // namespace rkv::rdma

// In a coroutine whose result is a Result: evaluates an expression of type Result<T>, and returns
// its error from the coroutine. The expression may contain co_await.
#define RKV_CO_RETURN_IF_ERROR(expression)                        \
  do {                                                            \
    if (auto rkv_status = (expression); !rkv_status) [[unlikely]] \
      co_return std::unexpected(rkv_status.error());              \
  } while (false)
// RKV_CO_ASSIGN_OR_RETURN(auto request, co_await next_request(executor, listener));
#define RKV_CO_ASSIGN_OR_RETURN(declaration, expression)                  \
  auto RKV_CONCAT(rkv_result_, __LINE__) = (expression);                  \
  if (!RKV_CONCAT(rkv_result_, __LINE__)) [[unlikely]]                    \
    co_return std::unexpected(RKV_CONCAT(rkv_result_, __LINE__).error()); \
  declaration = std::move(*RKV_CONCAT(rkv_result_, __LINE__))
