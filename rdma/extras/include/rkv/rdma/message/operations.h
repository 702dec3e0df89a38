// Single verbs as coroutines: SEND, READ, WRITE, compare-and-swap and fetch-and-add on any queue
// pairs that share a completion queue.
//
//   RKV_ASSIGN_OR_RETURN(Operations operations, Operations::create(device, executor));
//   ... QueuePair::create(pd, operations.queue(), receives, {.send_length = 64}) ...
//   Status read = co_await operations.read(qp, local, remote);
//   Result<std::uint64_t> before = co_await operations.fetch_add(qp, old_value, word, 1);
//
// Invariants:
//   OPS-1  A request's wr_id names a slot and the slot's generation, never a coroutine. The slot
//       belongs to the device from the post until the completion. The waiter is in the coroutine's
//       frame and may be destroyed earlier; it then leaves the slot behind.
//   OPS-2  At most `outstanding` requests are posted, so neither the completion queue nor a send
//       queue of that length overflows. An operation waits while all slots are taken.
//   OPS-3  Every polled completion goes to its slot, so one coroutine's polling loses no completion
//       of another.
//
// A coroutine that is stopped or destroyed while it waits leaves its request to the device. Its
// buffers must stay until outstanding() is 0, which drained() waits for. Verbs cannot cancel a
// request; QueuePair::to_error() flushes all requests of a queue pair.
//
// Thread safety: one thread at a time, the executor's. An Operations object must outlive the
// coroutines that wait for its operations, and the executor must outlive it; both are checked.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/message/executor.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma {

namespace detail {

class OperationSlots;

// A coroutine's wait for completions. watch_ is the last field, so that it is destroyed first.
class RKV_EXPORT OperationWaiter : public Waiter {
 public:
  ~OperationWaiter() override;
  bool await_ready() { return attempt(); }
  void await_suspend(std::coroutine_handle<> continuation);
  int fd() const override;
  void fail(const Error& error) override;

 protected:
  OperationWaiter(OperationSlots& slots, std::stop_token stop);
  bool is_stopped() const { return watch_.stopped() || stop_.stop_requested(); }
  // Delivers the available completions to their slots. An error ends the wait.
  void pump();

  friend class OperationSlots;
  OperationSlots& slots_;
  std::stop_token stop_;
  bool done_ = false;
  Status outcome_;
  StopWatch watch_;
};

// One request and the coroutine that waits for it.
class RKV_EXPORT Operation : public OperationWaiter {
 public:
  Operation(OperationSlots& slots, const char* name, std::stop_token stop)
      : OperationWaiter(slots, std::move(stop)), name_(name) {}
  ~Operation() override;
  Result<bool> arm() override;
  void fail(const Error& error) override;
  bool attempt() override;

 protected:
  virtual Status post(std::uint64_t wr_id) = 0;

 private:
  friend class OperationSlots;
  void abandon();
  const char* name_;                   // e.g. "RDMA READ"
  std::optional<std::uint32_t> slot_;  // set while posted and not completed
};

// `Post` posts the request with a given wr_id; `Answer` returns the result of a success.
template <class Post, class Answer>
class OperationOf final : public Operation {
 public:
  OperationOf(OperationSlots& slots, const char* name, std::stop_token stop, Post post,
              Answer answer)
      : Operation(slots, name, std::move(stop)), post_(post), answer_(answer) {}
  Result<std::invoke_result_t<Answer>> await_resume() const {
    RKV_RETURN_IF_ERROR(outcome_);
    if constexpr (std::is_void_v<std::invoke_result_t<Answer>>) {
      return {};
    } else {
      return answer_();
    }
  }

 private:
  Status post(std::uint64_t wr_id) override { return post_(wr_id); }
  Post post_;
  Answer answer_;
};

}  // namespace detail

struct OperationsOptions {
  std::uint32_t outstanding = 64;  // requests of all queue pairs together; 1 to 16384
};

class RKV_EXPORT Operations {
  // Declared before the functions that deduce their return types from it.
  class RKV_EXPORT Drained final : public detail::OperationWaiter {
   public:
    Drained(detail::OperationSlots& slots, std::stop_token stop)
        : OperationWaiter(slots, std::move(stop)) {}
    Status await_resume() const { return outcome_; }
    Result<bool> arm() override;
    bool attempt() override;
  };

  static std::uint64_t word_in(const RegisteredSpan& old_value);
  detail::OperationSlots& slots() const;
  void check(const QueuePair& qp) const;
  template <class Fill, class Answer = void (*)()>
  auto start(const char* name, std::stop_token stop, QueuePair& qp, Fill fill,
             Answer answer = nullptr) {
    check(qp);
    const auto post = [&qp, fill](std::uint64_t id) -> Status {
      Batch batch = qp.batch();
      fill(batch, id);
      return std::move(batch).submit();
    };
    return detail::OperationOf<decltype(post), Answer>(slots(), name, std::move(stop), post,
                                                       answer);
  }

 public:
  static Result<Operations> create(const Device& device, Executor& executor,
                                   const OperationsOptions& options = {});
  // Allowed while coroutines wait. A moved-from object may only be destroyed; any other call aborts
  // with a message.
  Operations(Operations&&) noexcept;
  Operations& operator=(Operations&&) = delete;
  // REQUIRES: no coroutine waits for an operation or for drained(). Nothing could resume it, so the
  // process aborts with a message. Requests may be outstanding: their buffers are free when the
  // queue pairs that carry them have ended.
  ~Operations();

  // The completion queue for the sends of queue pairs, whose send_length must be at least
  // `outstanding`. Receives must complete into another queue.
  const CompletionQueue& queue() const;
  // Requests posted and not completed, with or without a waiter.
  std::size_t outstanding() const;

  // Await each call at once. Spans, buffers and the queue pair must live until the completion.
  // Errors are those of posting and of the completion (error.h); is_stopped() recognizes a stop.
  auto send(QueuePair& qp, const RegisteredSpan& message, std::stop_token stop = {}) {
    return start("SEND", std::move(stop), qp, [=](Batch& batch, std::uint64_t id) {
      batch.send(id, OpFlags::kSignaled, message);
    });
  }
  auto read(QueuePair& qp, const RegisteredSpan& to, const RemoteSpan& from,
            std::stop_token stop = {}) {
    return start("RDMA READ", std::move(stop), qp, [=](Batch& batch, std::uint64_t id) {
      batch.read(id, OpFlags::kSignaled, to, from);
    });
  }
  auto write(QueuePair& qp, const RegisteredSpan& from, const RemoteSpan& to,
             std::stop_token stop = {}) {
    return start("RDMA WRITE", std::move(stop), qp, [=](Batch& batch, std::uint64_t id) {
      batch.write(id, OpFlags::kSignaled, from, to);
    });
  }
  // Both return the word's old value, which the device also stores into the 8 bytes of `old_value`.
  auto compare_swap(QueuePair& qp, const RegisteredSpan& old_value, const RemoteSpan& word,
                    std::uint64_t expected, std::uint64_t desired, std::stop_token stop = {}) {
    return start(
        "compare and swap", std::move(stop), qp,
        [=](Batch& batch, std::uint64_t id) {
          batch.compare_swap(id, OpFlags::kSignaled, old_value, word, expected, desired);
        },
        [=] { return word_in(old_value); });
  }
  auto fetch_add(QueuePair& qp, const RegisteredSpan& old_value, const RemoteSpan& word,
                 std::uint64_t addend, std::stop_token stop = {}) {
    return start(
        "fetch and add", std::move(stop), qp,
        [=](Batch& batch, std::uint64_t id) {
          batch.fetch_add(id, OpFlags::kSignaled, old_value, word, addend);
        },
        [=] { return word_in(old_value); });
  }
  // Completes when nothing is outstanding.
  auto drained(std::stop_token stop = {}) { return Drained(slots(), std::move(stop)); }

 private:
  explicit Operations(std::unique_ptr<detail::OperationSlots> slots);
  std::unique_ptr<detail::OperationSlots> slots_;
};

}  // namespace rkv::rdma
