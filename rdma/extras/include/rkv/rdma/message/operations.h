// Single verbs as coroutines: SEND, receive, READ, WRITE, compare-and-swap and fetch-and-add on any
// queue pairs that share a completion queue.
//
//   RKV_ASSIGN_OR_RETURN(Operations operations, Operations::create(device, executor));
//   ... QueuePair::create(pd, operations.queue(), operations.queue(), {.send_length = 64}) ...
//   Status read = co_await operations.read(qp, local, remote);
//   Result<std::uint64_t> before = co_await operations.fetch_add(qp, old_value, word, 1);
//
//   // A receive is posted first, even before the queue pair is connected, and awaited later.
//   RKV_ASSIGN_OR_RETURN(PostedReceive posted, operations.post_receive(qp, buffer));
//   Result<WorkCompletion> message = co_await operations.receive(posted, deadline);
//
// Invariants:
//   OPS-1  A request's wr_id names a slot and the slot's generation, never a coroutine. The slot
//       belongs to the device from the post until the completion. The waiter is in the coroutine's
//       frame and may be destroyed earlier; it then leaves the slot behind.
//   OPS-2  At most `outstanding` sends and `receives` receives are posted, so neither the
//       completion queue nor a send queue of that length overflows. An operation waits while all
//       slots of sends are taken. Receives have slots of their own: the answer to a message never
//       waits for the message.
//   OPS-3  Every polled completion goes to its slot, so one coroutine's polling loses no completion
//       of another.
//   OPS-4  A message stays in its receive's slot until it is taken. A wait for it that is stopped,
//       timed out or destroyed loses nothing: the same PostedReceive can be awaited again.
//
// A coroutine that is stopped or destroyed while it waits leaves its request to the device. Its
// buffers must stay until outstanding() is 0, which drained() waits for. Verbs cannot cancel a
// request; QueuePair::to_error() flushes those that a queue pair has. Before a queue pair ends,
// wait for drained(qp), with a deadline: soft-iWARP never completes a receive that was posted after
// the connection's end. After the queue pair has ended, forget() frees the requests that did not
// complete.
//
// Thread safety: one thread at a time, the executor's. An Operations object must outlive the
// coroutines that wait for its operations and its PostedReceives, and the executor must outlive it;
// all are checked.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/message/executor.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma {

namespace detail {

class OperationSlots;

// A coroutine's wait for completions.
class RKV_EXPORT OperationWaiter : public LimitedWaiter {
 public:
  ~OperationWaiter() override;
  bool await_ready() { return attempt(); }
  void await_suspend(std::coroutine_handle<> continuation);
  int fd() const override;
  void fail(const Error& error) override;

 protected:
  OperationWaiter(OperationSlots& slots, Until until);
  // Ends the wait if its limit is reached; else delivers the available completions to their slots.
  // An error ends the wait.
  void pump();

  friend class OperationSlots;
  OperationSlots& slots_;
  bool done_ = false;
  Status outcome_;
};

// One request and the coroutine that waits for it.
class RKV_EXPORT Operation : public OperationWaiter {
 public:
  Operation(OperationSlots& slots, const char* name, std::uint32_t qp_num, Until until)
      : OperationWaiter(slots, std::move(until)), name_(name), qp_num_(qp_num) {}
  ~Operation() override;
  Result<bool> arm() override;
  void fail(const Error& error) override;
  bool attempt() override;

 protected:
  virtual Status post(std::uint64_t wr_id) = 0;

 private:
  friend class OperationSlots;
  void abandon();
  const char* name_;  // e.g. "RDMA READ"
  std::uint32_t qp_num_;
  std::optional<std::uint32_t> slot_;  // set while posted and not completed
};

// `Post` posts the request with a given wr_id; `Answer` returns the result of a success.
template <class Post, class Answer>
class OperationOf final : public Operation {
 public:
  OperationOf(OperationSlots& slots, const char* name, std::uint32_t qp_num, Until until, Post post,
              Answer answer)
      : Operation(slots, name, qp_num, std::move(until)), post_(post), answer_(answer) {}
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

// Both count the requests of all queue pairs together.
struct OperationsOptions {
  std::uint32_t outstanding = 64;  // sends, READs, WRITEs and atomics; 1 to 16384
  std::uint32_t receives = 64;     // posted receives and untaken messages; 0 to 16384
};

// A receive buffer that is posted, and then the message in it. The destructor leaves a buffer that
// is still posted to the device: the next message is written there and lost.
class RKV_EXPORT PostedReceive {
 public:
  PostedReceive(PostedReceive&& other) noexcept
      : slots_(std::exchange(other.slots_, nullptr)), slot_(other.slot_) {}
  PostedReceive& operator=(PostedReceive&& other) noexcept {
    std::swap(slots_, other.slots_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  // REQUIRES: no coroutine waits for it; otherwise it aborts.
  ~PostedReceive();
  // True until receive() has returned the message, or the error of the completion.
  bool pending() const { return slots_ != nullptr; }

 private:
  friend class Operations;
  PostedReceive(detail::OperationSlots& slots, std::uint32_t slot) : slots_(&slots), slot_(slot) {}
  detail::OperationSlots* slots_;
  std::uint32_t slot_;
};

class RKV_EXPORT Operations {
  // Declared before the functions that deduce their return types from it.
  class RKV_EXPORT Drained final : public detail::OperationWaiter {
   public:
    Drained(detail::OperationSlots& slots, Until until, std::optional<std::uint32_t> qp_num = {})
        : OperationWaiter(slots, std::move(until)), qp_num_(qp_num) {}
    Status await_resume() const { return outcome_; }
    Result<bool> arm() override;
    bool attempt() override;

   private:
    bool is_drained() const;
    std::optional<std::uint32_t> qp_num_;  // nullopt: of all queue pairs
  };
  class RKV_EXPORT Receive final : public detail::OperationWaiter {
   public:
    Receive(PostedReceive& posted, Until until);
    ~Receive() override;
    Result<WorkCompletion> await_resume() const;
    Result<bool> arm() override;
    bool attempt() override;

   private:
    PostedReceive& posted_;
    WorkCompletion message_;
  };

  static std::uint64_t word_in(const RegisteredSpan& old_value);
  detail::OperationSlots& slots() const;
  void check(const QueuePair& qp) const;
  template <class Fill, class Answer = void (*)()>
  auto start(const char* name, Until until, QueuePair& qp, Fill fill, Answer answer = nullptr) {
    check(qp);
    const auto post = [&qp, fill](std::uint64_t id) -> Status {
      Batch batch = qp.batch();
      fill(batch, id);
      return std::move(batch).submit();
    };
    return detail::OperationOf<decltype(post), Answer>(slots(), name, qp.number(), std::move(until),
                                                       post, answer);
  }

 public:
  static Result<Operations> create(const Device& device, Executor& executor,
                                   const OperationsOptions& options = {});
  // Allowed while coroutines wait. A moved-from object may only be destroyed; any other call aborts
  // with a message.
  Operations(Operations&&) noexcept;
  Operations& operator=(Operations&&) = delete;
  // REQUIRES: no coroutine waits for an operation or for drained(), and no PostedReceive is
  // pending. Nothing could resume it, so the process aborts with a message. Requests may be
  // outstanding: their buffers are free when the queue pairs that carry them have ended.
  ~Operations();

  // The completion queue for the sends of queue pairs, whose send_length must be at least
  // `outstanding`, and for the receives that post_receive() posts. Other receives must complete
  // into another queue.
  const CompletionQueue& queue() const;
  // Requests posted and not completed, with or without a waiter.
  std::size_t outstanding() const;

  // Await each call at once. Spans, buffers and the queue pair must live until the completion.
  // Errors are those of posting and of the completion (error.h). kTimeout: `until` ended the wait;
  // is_stopped() recognizes a stop.
  auto send(QueuePair& qp, const RegisteredSpan& message, Until until = {}) {
    return start("SEND", std::move(until), qp, [=](Batch& batch, std::uint64_t id) {
      batch.send(id, OpFlags::kSignaled, message);
    });
  }
  // The peer's receive completes with `immediate`.
  auto send_immediate(QueuePair& qp, const RegisteredSpan& message, std::uint32_t immediate,
                      Until until = {}) {
    return start("SEND with immediate", std::move(until), qp, [=](Batch& batch, std::uint64_t id) {
      batch.op(id).signaled().immediate(immediate).send(message);
    });
  }
  auto read(QueuePair& qp, const RegisteredSpan& to, const RemoteSpan& from, Until until = {}) {
    return start("RDMA READ", std::move(until), qp, [=](Batch& batch, std::uint64_t id) {
      batch.read(id, OpFlags::kSignaled, to, from);
    });
  }
  auto write(QueuePair& qp, const RegisteredSpan& from, const RemoteSpan& to, Until until = {}) {
    return start("RDMA WRITE", std::move(until), qp, [=](Batch& batch, std::uint64_t id) {
      batch.write(id, OpFlags::kSignaled, from, to);
    });
  }
  // Takes one of the peer's receives, which completes with `immediate` after the bytes are in
  // place.
  auto write_immediate(QueuePair& qp, const RegisteredSpan& from, const RemoteSpan& to,
                       std::uint32_t immediate, Until until = {}) {
    return start("RDMA WRITE with immediate", std::move(until), qp,
                 [=](Batch& batch, std::uint64_t id) {
                   batch.op(id).signaled().immediate(immediate).write(from, to);
                 });
  }
  // Both return the word's old value, which the device also stores into the 8 bytes of `old_value`.
  auto compare_swap(QueuePair& qp, const RegisteredSpan& old_value, const RemoteSpan& word,
                    std::uint64_t expected, std::uint64_t desired, Until until = {}) {
    return start(
        "compare and swap", std::move(until), qp,
        [=](Batch& batch, std::uint64_t id) {
          batch.compare_swap(id, OpFlags::kSignaled, old_value, word, expected, desired);
        },
        [=] { return word_in(old_value); });
  }
  auto fetch_add(QueuePair& qp, const RegisteredSpan& old_value, const RemoteSpan& word,
                 std::uint64_t addend, Until until = {}) {
    return start(
        "fetch and add", std::move(until), qp,
        [=](Batch& batch, std::uint64_t id) {
          batch.fetch_add(id, OpFlags::kSignaled, old_value, word, addend);
        },
        [=] { return word_in(old_value); });
  }

  // Posts a receive; does not wait. `qp` may be a PreparedQueuePair in INIT, so that the peer's
  // first message finds a buffer. Receives of one queue pair take messages in the order in which
  // they were posted; they may be awaited in any order. kBusy: `receives` are posted or hold
  // messages. REQUIRES: the queue pair's receives complete into queue(), and it has no shared
  // receive queue. The buffer must live until the completion.
  Result<PostedReceive> post_receive(QueuePairBase& qp, const RegisteredSpan& buffer);
  // Waits for the message. byte_length, immediate and kind describe it (completion.h): a SEND, or a
  // WRITE with immediate data, which leaves the buffer unchanged. One coroutine at a time waits for
  // a PostedReceive, which must live until the result. REQUIRES: posted.pending().
  auto receive(PostedReceive& posted, Until until = {}) {
    return Receive(posted, std::move(until));
  }

  // Completes when no request is outstanding, of all queue pairs or of one. A receive completes by
  // a message or by QueuePair::to_error().
  auto drained(Until until = {}) { return Drained(slots(), std::move(until)); }
  auto drained(const QueuePairBase& qp, Until until = {}) {
    return Drained(slots(), std::move(until), qp.number());
  }
  // Frees the slots of requests that a queue pair has not completed; coroutines that wait for them
  // get a flush error. REQUIRES: the queue pair was destroyed, and no other has its number yet.
  Status forget(std::uint32_t qp_num);

 private:
  explicit Operations(std::unique_ptr<detail::OperationSlots> slots);
  std::unique_ptr<detail::OperationSlots> slots_;
};

}  // namespace rkv::rdma
