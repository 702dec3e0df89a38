// The connections of a SharedClient: engines that its threads drive in turn, and one more engine
// for calls that block long.
//
// Invariants:
//  SHARED-1  call() returns after the operation has ended, so key, value and result may lie in the
//      caller's frame.
//  SHARED-2  A write that was acknowledged over any connection is held until a flush covers it in
//      the epoch it was acknowledged in. If a flush finds another epoch, the write may be lost, and
//      that flush fails with kStale (as ACK-2).
//
// Thread safety: any thread, apart from the constructor and destructor.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/api/held_writes.h"
#include "client/async/async_engine.h"
#include "common/check.h"
#include "common/mutex.h"
#include "rkv/client.h"
#include "rkv/fork.h"

namespace rkv::client {

class SharedEngines {
 public:
  static constexpr std::size_t kMostConnections = 64;

  static Result<std::unique_ptr<SharedEngines>> create(const ClientOptions& options,
                                                       std::size_t connections,
                                                       std::shared_ptr<rdma::Transport> transport,
                                                       const Clock* clock, std::string* refusal);

  // Carries out one operation and returns its end, converted by `convert`. That runs on the thread
  // that drives the connection, while this one waits.
  template <class T, class Convert>
  Result<T> call(const AsyncRequest& request, Convert convert);

  // Carries out `count` operations, many at once, within the time. `make(index)` returns a request;
  // `end(index, result)` takes its end. Both run on the thread that drives, one at a time, and on
  // this one. In a callback of this client all end with kInvalidArgument.
  template <class Make, class End>
  void call_many(std::size_t count, std::chrono::milliseconds timeout, Make make, End end);

  // Calls `use(client, time)` with the client for calls that block long, and with the time that is
  // left. One thread after another does so. kTimeout: other threads' calls took all of the time.
  template <class Use>
  auto exclusively(std::chrono::milliseconds timeout, Use use)
      -> decltype(use(std::declval<Client&>(), timeout));

  // Returns when the acknowledged writes of all threads are on disk (SHARED-2).
  Result<std::uint64_t> flush(std::chrono::milliseconds timeout);

  // Flushes first: the exclusive client knows nothing of the others' writes.
  Result<std::uint64_t> backup(std::string_view name, std::chrono::milliseconds timeout);

  bool is_inherited() const { return made_.is_inherited(); }
  const std::shared_ptr<UserMemory>& memory() const {
    return connections_.front()->engine->memory();
  }
  ClientStats stats();
  const std::string& describe() const { return description_; }
  static std::string& refusal_of_this_thread();  // SharedClient::last_refusal()
  void describe_as(std::string text) { description_ = std::move(text); }

 private:
  struct Connection {
    std::unique_ptr<AsyncEngine> engine;
    HeldWrites held;
  };
  // Most operations that one call has under way at once.
  static constexpr std::size_t kMostAtOnce = 256;

  SharedEngines() = default;
  static Result<Outcome> failed(const Error& error);
  static std::chrono::milliseconds left(const Deadline& deadline) {
    return std::chrono::milliseconds(std::max<std::int64_t>(1, deadline.left_ms()));
  }
  Connection& of_this_thread();
  static void note(Connection& connection, const AsyncRequest& request, const Outcome& outcome);
  // Call it in `done`: stores the server's sentence if the server refused, or nothing if there is
  // no memory for it.
  static void take_refusal(const Result<Outcome>& result, std::string& refusal) noexcept;
  void note_exclusive_failure(const Error& error);
  // Owns the exclusive client while this object lives, unless the deadline has passed.
  class Exclusively {
   public:
    Exclusively(SharedEngines& engines, const Deadline& deadline);
    ~Exclusively();
    Exclusively(const Exclusively&) = delete;
    Exclusively& operator=(const Exclusively&) = delete;
    explicit operator bool() const { return has_; }

   private:
    SharedEngines& engines_;
    bool has_ = false;
  };

  const ForkGuard made_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::string description_;
  std::unique_ptr<Client> exclusive_;
  Engine* exclusive_engine_ = nullptr;  // of exclusive_
  Mutex exclusive_mutex_;
  ConditionVariable exclusive_ends_;
  bool is_exclusive_taken_ RKV_GUARDED_BY(exclusive_mutex_) = false;
  ClientStats exclusive_stats_ RKV_GUARDED_BY(exclusive_mutex_){};  // of its last use
};

template <class T, class Convert>
Result<T> SharedEngines::call(const AsyncRequest& request, Convert convert) {
  struct Operation : AsyncOperation {
    Connection* connection = nullptr;
    Convert* convert = nullptr;
    Waiter waiter;
    std::optional<Result<T>> result;
    std::string refusal;
  };
  Connection& connection = of_this_thread();
  RKV_RETURN_IF_ERROR(connection.engine->may_wait());
  Operation operation;
  operation.request = request;
  operation.connection = &connection;
  operation.convert = &convert;
  operation.done = [](AsyncOperation& self, const Result<Outcome>& result) {
    auto& own = static_cast<Operation&>(self);
    if (result) note(*own.connection, own.request, *result);
    own.result.emplace((*own.convert)(own.request, result));
    take_refusal(result, own.refusal);
    own.waiter.end();
  };
  RKV_CHECK(connection.engine->submit(operation), "only the destructor closes it");
  RKV_RETURN_IF_ERROR(
      connection.engine->wait_for(operation.waiter, [&] { connection.engine->cancel(operation); }));
  if (!*operation.result) refusal_of_this_thread().swap(operation.refusal);
  return *std::move(operation.result);
}

template <class Make, class End>
void SharedEngines::call_many(std::size_t count, std::chrono::milliseconds timeout, Make make,
                              End end) {
  struct Batch {
    Connection& connection;
    Make& make;
    End& end;
    Deadline deadline;
    std::size_t count;
    std::atomic<std::size_t> next;  // index of the first operation that is not begun
    std::atomic<std::size_t> left;
    std::atomic<bool> is_withdrawn;
    Waiter waiter;
    std::string refusal;
  };
  struct Operation : AsyncOperation {
    Batch* batch = nullptr;
    std::size_t index = 0;
    void begin(std::size_t at) {
      index = at;
      request = batch->make(at);
      request.get.timeout = request.put.timeout = left(batch->deadline);
      RKV_CHECK(batch->connection.engine->submit(*this), "only the destructor closes it");
    }
  };
  if (count == 0) return;
  Connection& connection = of_this_thread();
  if (const Status may = connection.engine->may_wait(); !may) {
    for (std::size_t i = 0; i < count; ++i)
      end(i, failed(may.error()));
    return;
  }
  const std::size_t at_once = std::min(count, kMostAtOnce);
  Batch batch{.connection = connection,
              .make = make,
              .end = end,
              .deadline = connection.engine->engine().connector.deadline(timeout),
              .count = count,
              .next = at_once,
              .left = count,
              .is_withdrawn = false,
              .waiter = {},
              .refusal = {}};
  const auto operations = std::make_unique<Operation[]>(at_once);
  for (std::size_t i = 0; i < at_once; ++i) {
    Operation& operation = operations[i];
    operation.batch = &batch;
    operation.done = [](AsyncOperation& self, const Result<Outcome>& result) {
      auto& own = static_cast<Operation&>(self);
      Batch& all = *own.batch;
      if (result) note(all.connection, own.request, *result);
      all.end(own.index, result);
      if (all.refusal.empty()) take_refusal(result, all.refusal);
      std::size_t ended = 1;
      for (std::size_t at; (at = all.next.fetch_add(1, std::memory_order_relaxed)) < all.count;) {
        const bool is_withdrawn = all.is_withdrawn.load(std::memory_order_relaxed);
        if (!is_withdrawn && !all.deadline.passed()) {
          own.begin(at);
          break;
        }
        all.end(at, failed({.code = is_withdrawn ? Code::kCancelled : Code::kTimeout,
                            .text = is_withdrawn ? "the call was interrupted before this was sent"
                                                 : "the deadline passed before this was sent"}));
        ++ended;
      }
      if (all.left.fetch_sub(ended, std::memory_order_acq_rel) == ended) all.waiter.end();
    };
    operation.begin(i);
  }
  const auto withdraw = [&] {
    batch.is_withdrawn.store(true, std::memory_order_relaxed);
    for (std::size_t i = 0; i < at_once; ++i)
      connection.engine->cancel(operations[i]);
  };
  RKV_CHECK(connection.engine->wait_for(batch.waiter, withdraw), "may_wait() has allowed it");
  refusal_of_this_thread().swap(batch.refusal);
}

template <class Use>
auto SharedEngines::exclusively(std::chrono::milliseconds timeout, Use use)
    -> decltype(use(std::declval<Client&>(), timeout)) {
  if (is_inherited()) return std::unexpected(kInherited);
  const Deadline deadline = exclusive_engine_->connector.deadline(timeout);
  const Exclusively taken(*this, deadline);
  if (!taken) return fail(Code::kTimeout, "other threads' calls of this kind took the time");
  auto result = use(*exclusive_, left(deadline));
  if (!result) note_exclusive_failure(result.error());
  return result;
}

}  // namespace rkv::client
