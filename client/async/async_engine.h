// Drives the operations of an AsyncClient on one server: GETs and writes in flight together on one
// connection, in rounds that never block.
//
// Any thread submits and cancels. One thread at a time drives: poll() and arm() return at once if
// another thread does, and the waiting calls and close() wait for their turn. What blocks
// (connecting, READing the map again, asking a primary whether it is one) runs in an Aside.
// Meanwhile the driver touches no part of the engine, but ends operations whose time is up.
//
// Invariants:
//  ASYNC-1  Each submitted operation ends exactly once, on a driving thread.
//  ASYNC-2  An operation that has ended is not looked at any more, nor its key, value and caller's
//      memory. READs that are under way then land in the client's own memory, which is used again
//      when they have landed or their connection is closed (LINK-1). A GET whose READs may land in
//      registered memory of the caller (user_memory.h) ends after them.
//  ASYNC-3  No operation ends later than the first poll() after its deadline. The exception is such
//      a GET: it ends when its READs have landed, or the connection was closed. A connection over
//      which nothing has come for 2 s is closed then, after a step that is under way.
//  ASYNC-4  When arm() has returned true, the descriptor becomes readable when poll() has something
//      to do: an event of the connection, a submission, a step that has ended, a time that is up.
//  ASYNC-5  In a group an operation begins on a connection whose server is believed after the
//      operation was submitted (TRUST-1).
//  ASYNC-6  While a thread is in wait_for(), its operation is driven: by a thread of another call,
//      which calls a waiting one at its end (WAIT-1), or by itself.
//
// Thread safety: submit(), cancel() and what is said above: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "client/async/aside.h"
#include "client/async/feeds.h"
#include "client/async/node_pool.h"
#include "client/async/poll_descriptor.h"
#include "client/async/submissions.h"
#include "client/async/waiters.h"
#include "client/engine/get_pipeline.h"
#include "client/engine/write_pipeline.h"
#include "client/link/user_memory.h"
#include "rdma/transport/spin_window.h"

namespace rkv::client {

class AsyncEngine final : public AsyncCore, private AsyncEnds {
 public:
  // `memory`: of the program; other engines of the same transport may have it too.
  static Result<std::unique_ptr<AsyncEngine>> create(std::unique_ptr<Engine> engine,
                                                     std::shared_ptr<UserMemory> memory);
  ~AsyncEngine() override;
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  void submit(AsyncOperation& operation) override;
  void cancel(AsyncOperation& operation) override;
  Status wait_for(Waiter& waiter) override;
  // kInvalidArgument: this thread is in a callback of this client.
  Status may_wait() const;
  CallbackNode* take_node() override { return nodes_.take(); }
  // Submitted and not ended.
  std::size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

  // Does what can be done without blocking. Returns how many operations ended.
  std::size_t poll();
  int descriptor() const { return descriptor_.fd(); }
  // Prepares the descriptor for a sleep. False: poll() first.
  bool arm();
  // Polls until an operation has ended, nothing is in flight, or `timeout` has passed, unless it is
  // 0. Returns how many have ended. kInvalidArgument: this thread is in a callback of this client.
  Result<std::size_t> wait(std::chrono::milliseconds timeout);
  // Ends all operations, and those that are submitted later, with an error. kInvalidArgument: as
  // above.
  Status close();

  // Blocks for some milliseconds at most if another thread drives. While something blocks: as of
  // the moment before.
  ClientStats stats();
  Engine& engine() { return *engine_; }
  const std::shared_ptr<UserMemory>& memory() const { return memory_; }

 private:
  AsyncEngine(std::unique_ptr<Engine> engine, std::shared_ptr<UserMemory> memory,
              PollDescriptor descriptor);

  bool is_in_callback() const {
    return driver_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  std::size_t poll_in_turn();
  bool arm_in_turn();
  // Whether another thread has submitted or withdrawn an operation.
  bool has_arrived() const {
    return !submissions_.is_empty() || cancels_.load(std::memory_order_seq_cst);
  }
  bool has_news();
  bool spin(const Deadline& deadline);
  // Sleeps after arm_in_turn(), at most until the deadline.
  void sleep(const Deadline& deadline);
  // Polls until `is_over(ended)` or the deadline, or until close() waits. Returns how many
  // operations have ended. REQUIRES a turn.
  template <class IsOver>
  std::size_t drive(const Deadline& deadline, IsOver is_over);
  class Turn;  // excludes other drivers while it lives

  enum class Doing : std::uint8_t { kNothing, kConnect, kClose, kBelieve, kStep };
  void wake();
  void awake();
  void admit();
  Status admit(AsyncOperation& operation);
  void end(AsyncOperation& operation, const Result<Outcome>& result) noexcept override;
  void work();
  bool round();
  bool is_at_rest() const { return gets_.over() && writes_.over(); }
  std::size_t take_events();
  void reconnect();
  void run_aside(Doing doing, Aside::Step step);
  bool take_aside();
  void on_connect(const Status& connected);
  void fail_all(const Error& error);
  // Ends operations for which `error_of(operation, Stage)` returns an error.
  enum class Stage : std::uint8_t { kWaits, kUnderWay, kWaitsForMark };
  template <class ErrorOf>
  void end_where(ErrorOf error_of);
  void end_overdue(Nanos now);
  void end_cancelled();
  bool awaits_given_up() const;
  static Error ended_before(Error error, const AsyncOperation& operation, Stage stage);
  Error overdue(const AsyncOperation& operation, Stage stage) const;
  void look_for_silence(Nanos now);
  Nanos wake_at(Nanos now);
  void note_stats();

  // Apart from each other on lines of the processor's cache: what all threads write, and what the
  // driving thread writes while others look.
  static constexpr std::size_t kCacheLine = 64;

  NodePool nodes_;  // outlives all operations
  std::unique_ptr<Engine> engine_;
  const Clock& clock_;
  const std::shared_ptr<UserMemory> memory_;
  PollDescriptor descriptor_;
  alignas(kCacheLine) Submissions submissions_;
  std::atomic<std::size_t> in_flight_ = 0;
  alignas(kCacheLine) std::atomic<bool> sleeps_ = false;  // arm() has returned true, and nobody has
                                                          // woken the driver
  std::atomic<bool> cancels_ = false;
  std::atomic<bool> closing_ = false;      // close() waits for its turn
  std::atomic<bool> wants_stats_ = false;  // stats() waits for them
  alignas(kCacheLine) std::atomic<bool> driven_ = false;
  std::atomic<bool> refused_ = false;      // a Turn was, since driven_ was set
  std::atomic<std::thread::id> driver_{};  // while driven_
  alignas(kCacheLine) Waiters waiters_;    // threads in wait_for() that do not drive

  // ---- of the driving thread
  alignas(kCacheLine) QueuedGets waiting_gets_;
  QueuedWrites waiting_writes_;
  const Deadline never_;  // the pipelines': each operation has its own
  GetPipeline gets_;
  WritePipeline writes_;
  bool closed_ = false;
  bool lost_ = false;      // the connection is, and the pipelines know it
  bool sleeping_ = false;  // descriptor_ is
  std::thread::id sleeper_{};
  rdma::SpinWindow spin_window_;
  bool owes_wake_ = false;  // another thread's sleep was ended: it must arm again
  bool has_more_ = false;   // poll() has left something to do
  Doing doing_ = Doing::kNothing;
  BlockingStep step_{};
  Error last_error_ = Connector::kWaits;  // of the last attempt to connect
  std::size_t ended_ = 0;
  Nanos first_deadline_;    // no operation has an earlier one
  Nanos connect_at_ = 0;    // no attempt to connect before this time
  Nanos silent_since_ = 0;  // nothing has come since, although something given up is under way
  Mutex stats_mutex_;
  ClientStats stats_ RKV_GUARDED_BY(stats_mutex_){};
  Aside aside_;  // ends first: it uses the others
};

}  // namespace rkv::client
