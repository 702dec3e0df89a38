// Drives the operations of an AsyncClient on one server: GETs and writes in flight together on one
// connection, in rounds that never block.
//
// Any thread submits and cancels. One thread at a time drives. If another thread drives, poll() and
// arm() return at once, and the waiting calls and close() wait for their turn. Steps that block
// (connecting, READing the map again, asking a primary whether it is one) run in an Aside.
// Meanwhile the driver touches no part of the engine, but ends operations whose time is up.
//
// Invariants:
//  ASYNC-1  Each operation that submit() has accepted ends exactly once, on a driving thread. None
//      is accepted once close() has begun, and none is left when it returns.
//  ASYNC-2  After an operation has ended, it is not accessed any more, nor are its key, its value
//      and the caller's memory. READs that are still under way land in the client's own memory.
//      That memory is used again when they have landed or their connection is closed (LINK-1). A
//      GET whose READs may land in registered memory of the caller (user_memory.h) ends after them.
//  ASYNC-3  No operation ends later than the first poll() after its deadline. The exception is a
//      GET whose READs may land in the caller's memory: it ends when they have landed, or the
//      connection was closed. In that case a connection over which nothing has come for 2 s is
//      closed, after a step that is under way.
//  ASYNC-4  When arm() has returned true, the descriptor becomes readable when poll() has something
//      to do: an event of the connection, a submission, a step that has ended, a time that is up.
//  ASYNC-5  In a group an operation begins on a connection whose server is believed after the
//      operation was submitted (TRUST-1).
//  ASYNC-6  While a thread is in wait_for(), some thread drives its operation: the thread itself,
//      or that of another call, which calls a waiting thread at its end (WAIT-1).
//  ASYNC-7  In a forked child no operation of the parent ends. Operations that are submitted in the
//      child end with kInherited in poll(), wait() or close(), and no other member is used
//      (FORK-1).
//
// Thread safety: any thread may call submit(), cancel() and the driving calls, as said above.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "client/async/aside.h"
#include "client/async/deadlines.h"
#include "client/async/feeds.h"
#include "client/async/node_pool.h"
#include "client/async/poll_descriptor.h"
#include "client/async/submissions.h"
#include "client/async/waiters.h"
#include "client/async/withdrawals.h"
#include "client/engine/get_pipeline.h"
#include "client/engine/write_pipeline.h"
#include "client/link/user_memory.h"
#include "common/at_fork.h"
#include "rdma/transport/spin_window.h"
#include "rkv/fork.h"

namespace rkv::client {

class AsyncEngine final : public AsyncCore, private AsyncEnds {
 public:
  // `memory`: the program's registered memory; other engines of the same transport may share it.
  static Result<std::unique_ptr<AsyncEngine>> create(std::unique_ptr<Engine> engine,
                                                     std::shared_ptr<UserMemory> memory);
  ~AsyncEngine() override;
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  bool submit(AsyncOperation& operation) override;
  void cancel(AsyncOperation& operation) override;
  Status wait_for(Waiter& waiter) override { return wait_for(waiter, {}); }
  // If the thread has an Interruption that asks for it, `withdraw` is called, and the wait
  // continues.
  Status wait_for(Waiter& waiter, const std::function<void()>& withdraw);
  // kInvalidArgument: this thread is in a callback of this client, or the client was inherited.
  Status may_wait() const;
  bool is_inherited() const { return made_.is_inherited(); }
  CallbackNode* take_node() override { return nodes_.take(); }
  void give_back(CallbackNode& node) override { nodes_.give_back(&node); }
  // Number of operations that were submitted and have not ended.
  std::size_t in_flight() const {
    return (is_inherited() ? in_flight_of_child_ : in_flight_).load(std::memory_order_relaxed);
  }

  // Does all that is possible without blocking. Returns how many operations ended.
  std::size_t poll();
  int descriptor() const { return descriptor_.fd(); }
  // Prepares the descriptor for a sleep. Returns false if poll() must be called first.
  bool arm();
  // Polls until an operation has ended, nothing is in flight, or `timeout` (0: no limit) has
  // passed. Returns how many operations have ended. kInvalidArgument: this thread is in a callback
  // of this client.
  Result<std::size_t> wait(std::chrono::milliseconds timeout);
  // Ends all operations with an error. Later ones are refused. kInvalidArgument: as above.
  Status close();

  // Returns the statistics. If another thread drives, blocks for some milliseconds at most. While a
  // step blocks, they are those before the step.
  ClientStats stats();
  // Call it in `done` of a failed operation: the server's sentence if the server refused the
  // operation, else empty.
  static const std::string& refusal();
  Engine& engine() { return *engine_; }
  const std::shared_ptr<UserMemory>& memory() const { return memory_; }

 private:
  AsyncEngine(std::unique_ptr<Engine> engine, std::shared_ptr<UserMemory> memory,
              PollDescriptor descriptor);

  std::size_t end_submissions_of_child();
  bool is_in_callback() const {
    return driver_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  std::size_t poll_in_turn();
  bool arm_in_turn();
  // Whether another thread has submitted or withdrawn an operation.
  bool has_arrived() const { return !submissions_.is_empty() || withdrawals_.has_any(); }
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
  void admit_all(AsyncOperation* submitted);
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
  enum class Stage : std::uint8_t { kWaits, kUnderWay, kWaitsForMark };
  // Ends the operations in the pipelines for which `error_of(operation, Stage)` returns an error.
  // Their number is bounded by the options, however many wait.
  template <class ErrorOf>
  void end_taken(ErrorOf error_of);
  // Ends all operations that `next()` returns, until that is null. Each is waiting or in a
  // pipeline.
  template <class Next, class ErrorOf>
  void end_each(Next next, ErrorOf error_of);
  OperationList& list_of(const AsyncOperation& operation);
  void end_all(const Error& error);
  void end_overdue(Nanos now);
  void end_withdrawn();
  bool awaits_given_up() const;
  static Error ended_before(Error error, const AsyncOperation& operation, Stage stage);
  Error overdue(const AsyncOperation& operation, Stage stage) const;
  void look_for_silence(Nanos now);
  Nanos wake_at(Nanos now);
  void note_stats();
  void note_refusal(const Error& error) noexcept;

  // Members that all threads write, and those that the driving thread writes while others read
  // them, are on cache lines of their own.
  static constexpr std::size_t kCacheLine = 64;

  const ForkGuard made_;
  NodePool nodes_;  // outlives all operations
  std::unique_ptr<Engine> engine_;
  const Clock& clock_;
  const std::shared_ptr<UserMemory> memory_;
  PollDescriptor descriptor_;
  alignas(kCacheLine) Submissions submissions_;
  std::atomic<std::size_t> in_flight_ = 0;
  alignas(kCacheLine) std::atomic<bool> sleeps_ = false;  // arm() has returned true, and nobody has
                                                          // woken the driver
  Withdrawals withdrawals_;
  std::atomic<bool> closing_ = false;      // close() waits for its turn
  std::atomic<bool> wants_stats_ = false;  // stats() waits for them
  alignas(kCacheLine) std::atomic<bool> driven_ = false;
  std::atomic<bool> refused_ = false;      // a Turn was refused since driven_ was set
  std::atomic<std::thread::id> driver_{};  // while driven_
  alignas(kCacheLine) Waiters waiters_;    // threads in wait_for() that do not drive

  // ---- of the driving thread
  alignas(kCacheLine) QueuedGets waiting_gets_;
  QueuedWrites waiting_writes_;
  Deadlines due_;         // of all operations that were admitted and have not ended
  const Deadline never_;  // for the pipelines: each operation has its own
  GetPipeline gets_;
  WritePipeline writes_;
  bool closed_ = false;
  bool lost_ = false;      // the connection is lost, and the pipelines know it
  bool sleeping_ = false;  // descriptor_ is sleeping
  std::thread::id sleeper_{};
  rdma::SpinWindow spin_window_;
  bool owes_wake_ = false;  // another thread's sleep was ended: that thread must arm again
  bool has_more_ = false;   // poll() has left something to do
  Doing doing_ = Doing::kNothing;
  BlockingStep step_{};
  Error last_error_ = Connector::kWaits;  // of the last attempt to connect
  std::size_t ended_ = 0;
  Nanos connect_at_ = 0;  // no attempt to connect before this time
  // Since when nothing has come, although an operation that was given up is under way.
  Nanos silent_since_ = 0;
  Mutex stats_mutex_;
  ClientStats stats_ RKV_GUARDED_BY(stats_mutex_){};
  Submissions submissions_of_child_;  // ASYNC-7
  std::atomic<std::size_t> in_flight_of_child_ = 0;
  const AtFork parting_{[this] { descriptor_.part_from_parent(); }};
  Aside aside_;  // ends first: it uses the others
};

}  // namespace rkv::client
