// The requests to an AsyncClient, and their ends. Programs use async_client.h. This is the layer
// below it, which allocates nothing.
//
// Thread safety: values; an AsyncCore any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "rkv/export.h"
#include "rkv/operations.h"
#include "rkv/result.h"
#include "rkv/values.h"

namespace rkv {

// How an operation ended that did not fail.
struct Outcome {
  ValueView value;            // of a get; valid while `done` runs
  std::uint64_t version = 0;  // of the value, or of the write
  Durability durability = Durability::kMemory;
  std::int64_t number = 0;  // of a counter after kAdd or kSwap
  bool swapped = false;     // kSwap: the number was as expected
};

// Key and value stay valid and unchanged until the operation has ended.
struct AsyncRequest {
  enum class Kind : unsigned char { kGet, kPut, kRemove, kAdd, kSwap };
  Kind kind = Kind::kGet;
  std::string_view key{};
  std::string_view value{};     // kPut
  std::int64_t operand = 0;     // kAdd: the summand. kSwap: the number that is expected
  std::int64_t desired = 0;     // kSwap
  GetOptions get{};             // kGet
  PutOptions put{};             // the others, as far as it applies to them
  std::span<std::byte> into{};  // for the caller of get_into()
  std::chrono::milliseconds timeout() const {
    return kind == Kind::kGet ? get.timeout : put.timeout;
  }
};

// Wakes a thread that sleeps on the word, which may be gone. For the inline code of Waiter.
RKV_EXPORT void wake_sleeper_on(std::atomic<std::uint32_t>* word);

namespace client {
class AsyncEngine;
class Deadlines;
class NodePool;
class OperationList;
class QueuedGets;
class QueuedWrites;
class Submissions;
class UserBuffer;
class Waiters;
class Withdrawals;
struct CallbackNode;

// A thread's wait for the end of an operation.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  bool ended() const { return (word_.load(std::memory_order_acquire) & kEnded) != 0; }
  // For `done`. The waiter may be gone when this returns.
  void end() { set(kEnded); }

 private:
  friend class Waiters;
  static constexpr std::uint32_t kEnded = 1;
  static constexpr std::uint32_t kCalled = 2;  // to drive the client
  static constexpr std::uint32_t kSleeps = 4;

  // Once the bit is set the waiter's thread may destroy it: the call after that only uses the
  // address. A thread that sleeps on what is there now is woken for nothing, which it bears.
  void set(std::uint32_t bit) {
    if ((word_.fetch_or(bit, std::memory_order_acq_rel) & kSleeps) != 0) wake_sleeper_on(&word_);
  }
  // Until a bit is set, or `longest` has passed; or for no reason.
  void sleep(std::chrono::nanoseconds longest);
  bool take_call() { return (word_.fetch_and(~kCalled, std::memory_order_relaxed) & kCalled) != 0; }

  std::atomic<std::uint32_t> word_ = 0;
  bool is_listed_ = false;
  Waiter* next_ = nullptr;
  Waiter* previous_ = nullptr;
};

}  // namespace client

// An operation from its submission to its end. The memory is the submitter's until submit() and
// after `done` was called, and the engine's in between.
struct AsyncOperation {
  using Done = void (*)(AsyncOperation& self, const Result<Outcome>& result);

  AsyncRequest request{};
  // Called once, on the thread that drives the client, without locks. It may submit operations, and
  // may free this one. It must not throw.
  Done done = nullptr;

 private:
  friend class client::AsyncEngine;
  friend class client::Deadlines;
  friend class client::NodePool;
  friend class client::OperationList;
  friend class client::QueuedGets;
  friend class client::QueuedWrites;
  friend class client::Submissions;
  friend class client::Withdrawals;

  enum class Place : unsigned char { kOutside, kWaits, kTaken };  // kTaken: by a pipeline
  enum class Fate : unsigned char { kOpen, kWithdrawn, kEnded };
  enum class Due : unsigned char { kNever, kInOrder, kInHeap };
  struct Links {
    AsyncOperation* next = nullptr;
    AsyncOperation* previous = nullptr;
  };

  AsyncOperation* next_ = nullptr;
  AsyncOperation* previous_ = nullptr;
  std::int64_t deadline_ = 0;
  Links due_;                            // of Deadlines
  AsyncOperation* due_child_ = nullptr;  // likewise
  Links withdrawn_;                      // of Withdrawals, under its mutex
  bool is_listed_withdrawn_ = false;     // likewise
  Due is_due_ = Due::kNever;
  Place place_ = Place::kOutside;  // of the thread that drives
  std::atomic<Fate> fate_ = Fate::kOpen;
  std::array<std::byte, 16> numbers_{};         // as the request carries them
  std::shared_ptr<client::UserBuffer> memory_;  // registered, that request.into lies in
};

// The functions that operations need from their client. Any thread.
class RKV_EXPORT AsyncCore {
 public:
  virtual ~AsyncCore() = default;
  // `operation` stays where it is until its `done` was called. False: the client is closed, and
  // `done` is not called.
  [[nodiscard]] virtual bool submit(AsyncOperation& operation) = 0;
  // Ends the operation with kCancelled at the next poll(), unless it has ended before.
  virtual void cancel(AsyncOperation& operation) = 0;
  // Polls, or waits while other threads do, until the waiter has ended: the operation's `done` sees
  // to that. kInvalidArgument: this thread is in a callback of the client.
  virtual Status wait_for(client::Waiter& waiter) = 0;
  // A node whose `done` calls its callback, if it has one, and then gives the node back.
  virtual client::CallbackNode* take_node() = 0;
  // Takes back a node that is not submitted.
  virtual void give_back(client::CallbackNode& node) = 0;
};

}  // namespace rkv
