// A reliable connection that manages its own work: queue pair, completion queue and buffer
// ownership. There are three ways to use it, the simplest first:
//
//   RKV_ASSIGN_OR_RETURN(PreparedChannel mine, PreparedChannel::create(pd, {}));
//   ... exchange mine.endpoint() and the peer's ...
//   RKV_ASSIGN_OR_RETURN(Channel channel, std::move(mine).connect(peer, {}));
//   RKV_RETURN_IF_ERROR(channel.write(local, remote, deadline));            // 1: blocks until done
//   auto out = channel.scope(deadline, [&](Scope& s) -> Status {            // 2: many at a time
//     Pending got = s.receive(reply);
//     RKV_RETURN_IF_ERROR(s.send(question).wait());
//     RKV_ASSIGN_OR_RETURN(Done done, got.wait());
//     return {};
//   });                  // here nothing is outstanding and `reply` is the caller's again
//   channel.queue_pair() // 3: by hand, see queue_pair.h
//
// Buffers: when a blocking operation or a scope has ended - by success, error, time-out or
// exception - no posted request names any of its buffers. Operations still outstanding at the
// deadline are cut off: the queue pair goes to the error state and its work is drained. If draining
// does not finish, the queue pair is destroyed. So a time-out ends the connection; use
// Pending::wait() for short waits. Memory must be registered in the channel's protection domain. It
// must live until its operations have ended.
//
// A failed operation also ends the connection, as in verbs. From then on broken() is true and all
// calls return kDisconnected; connect() a new channel.
//
// Thread safety: one thread at a time for a channel and all objects obtained from it. No operation
// allocates or logs. A wait polls for some rounds and then sleeps. Source: ibv_create_qp_ex(3),
// ibv_wr_post(3), ibv_modify_qp(3), ibv_destroy_qp(3).
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/rdma/read_plan.h"
#include "rkv/result.h"

namespace rkv::rdma {

enum class WorkOp : unsigned char {
  kSend,
  kSendImmediate,
  kReceive,
  kWrite,
  kWriteImmediate,
  kRead,
  kCompareSwap,
  kFetchAdd,
};
RKV_EXPORT const char* to_string(WorkOp op);  // "RDMA READ", static

// One operation as a value, for lists of work. `local` is the data to send or write, or the
// destination of the result. Atomics put the 8 bytes of the old value there.
struct Work {
  WorkOp op = WorkOp::kSend;
  RegisteredSpan local;
  RemoteSpan remote;
  std::uint64_t operand = 0;  // expected value, or addend
  std::uint64_t desired = 0;
  std::uint32_t immediate = 0;
  OpFlags flags = OpFlags::kNone;  // kFenced, kSolicited; a channel signals everything

  static Work send(const RegisteredSpan& message) {
    return {.op = WorkOp::kSend, .local = message, .remote = {}};
  }
  static Work send_immediate(const RegisteredSpan& message, std::uint32_t immediate) {
    return {.op = WorkOp::kSendImmediate, .local = message, .remote = {}, .immediate = immediate};
  }
  // An empty span receives messages without bytes, i.e. immediate data alone.
  static Work receive(const RegisteredSpan& buffer) {
    return {.op = WorkOp::kReceive, .local = buffer, .remote = {}};
  }
  static Work write(const RegisteredSpan& from, const RemoteSpan& to) {
    return {.op = WorkOp::kWrite, .local = from, .remote = to};
  }
  static Work write_immediate(const RegisteredSpan& from, const RemoteSpan& to,
                              std::uint32_t immediate) {
    return {.op = WorkOp::kWriteImmediate, .local = from, .remote = to, .immediate = immediate};
  }
  static Work read(const RegisteredSpan& to, const RemoteSpan& from) {
    return {.op = WorkOp::kRead, .local = to, .remote = from};
  }
  static Work compare_swap(const RegisteredSpan& old_value, const RemoteSpan& word,
                           std::uint64_t expected, std::uint64_t desired) {
    return {.op = WorkOp::kCompareSwap,
            .local = old_value,
            .remote = word,
            .operand = expected,
            .desired = desired};
  }
  static Work fetch_add(const RegisteredSpan& old_value, const RemoteSpan& word,
                        std::uint64_t addend) {
    return {.op = WorkOp::kFetchAdd, .local = old_value, .remote = word, .operand = addend};
  }
};

// The result of a finished operation.
struct Done {
  std::uint32_t bytes = 0;      // receives and READs
  std::uint32_t immediate = 0;  // host byte order
  bool has_immediate = false;
};

namespace detail {
class ChannelState;
struct ChannelAccess;
}  // namespace detail

// An operation of a scope. It cannot leave the closure, because it cannot be copied or moved. If it
// is destroyed without a wait, the scope waits for it and reports its error.
class RKV_EXPORT Pending {
 public:
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending();

  // Whether wait() would return at once. Polls, does not block.
  bool finished();
  // Blocks until the operation has finished or the deadline (by default the scope's) has passed.
  // kTimeout: the operation is still outstanding; wait again or leave the scope. After any other
  // result its buffer belongs to the caller. An operation that could not be posted returns the
  // reason: kBusy if as many operations are outstanding as ChannelOptions allows, kInvalidArgument,
  // kDisconnected. REQUIRES: wait() has not returned a result yet.
  Result<Done> wait();
  Result<Done> wait(const Deadline& deadline);

 private:
  friend class Scope;
  Pending(detail::ChannelState& state, const Deadline& deadline, const Work& work);

  detail::ChannelState* state_;
  Deadline deadline_;
  std::uint32_t node_ = 0;
  std::uint32_t generation_ = 0;
  Error refused_;  // the reason if posted_ is false
  bool posted_ = false;
  bool answered_ = false;
};

class Channel;

// The work of one closure. Only Channel::scope() creates it.
class RKV_EXPORT Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();  // leaves the scope if an exception ends the closure

  Pending send(const RegisteredSpan& message) { return start(Work::send(message)); }
  Pending receive(const RegisteredSpan& buffer) { return start(Work::receive(buffer)); }
  Pending write(const RegisteredSpan& from, const RemoteSpan& to) {
    return start(Work::write(from, to));
  }
  Pending read(const RegisteredSpan& to, const RemoteSpan& from) {
    return start(Work::read(to, from));
  }
  Pending compare_swap(const RegisteredSpan& old_value, const RemoteSpan& word,
                       std::uint64_t expected, std::uint64_t desired) {
    return start(Work::compare_swap(old_value, word, expected, desired));
  }
  Pending fetch_add(const RegisteredSpan& old_value, const RemoteSpan& word, std::uint64_t addend) {
    return start(Work::fetch_add(old_value, word, addend));
  }
  Pending start(const Work& work) { return {*state_, deadline_, work}; }

  // Posts operations without handles, for loops: all with one doorbell, or on an error none of the
  // sends. kBusy as above: wait_posted() frees slots.
  Status post(std::span<const Work> work);
  // Waits for operations posted by post() and for handles that were dropped. Returns the first
  // error among them, which is then not reported again. kTimeout: some are still outstanding.
  Status wait_posted();
  Status wait_posted(const Deadline& deadline);

 private:
  friend class Channel;
  Scope(detail::ChannelState& state, const Deadline& deadline);
  // The number of operations whose result was not taken.
  std::uint32_t unseen() const;
  Status leave(std::uint32_t& cut_off);

  detail::ChannelState* state_;
  Deadline deadline_;
  bool left_ = false;
};

// The result of a scope: the value the closure returned and, separately, the outcome of operations
// whose result the closure did not take.
template <class T>
struct [[nodiscard]] Scoped {
  Status operations;  // the first error; kTimeout if operations were cut off
  // Operations outstanding at the deadline: they may have happened or not.
  std::uint32_t cut_off_count = 0;
  T value;
};
template <>
struct [[nodiscard]] Scoped<void> {
  Status operations;
  std::uint32_t cut_off_count = 0;
};

namespace detail {
// Rejects bodies that return a handle or the scope itself.
template <class T, class S>
concept LeavesScope = !std::same_as<std::remove_cvref_t<std::remove_pointer_t<T>>, Pending> &&
                      !std::same_as<std::remove_cvref_t<std::remove_pointer_t<T>>, S>;
template <class F, class S>
concept ScopeBody = std::invocable<F&, S&> && LeavesScope<std::invoke_result_t<F&, S&>, S>;

template <class T>
constexpr bool succeeded(const T& value) {
  if constexpr (requires { value.has_value(); }) return value.has_value();
  return true;
}
}  // namespace detail

struct ChannelOptions {
  std::uint32_t sends = 32;     // outstanding operations other than receives
  std::uint32_t receives = 32;  // outstanding receives
  std::uint32_t send_sge = 4;   // local spans of one READ of read_all()
  // Messages and WRITEs up to this length are copied when posted.
  std::uint32_t inline_bytes = 0;
  SendOps operations = kAllSendOps;
  // Time that a queue pair in the error state may take to return its work before it is destroyed.
  std::int64_t drain_ms = 1000;
};

class RKV_EXPORT Channel {
 public:
  // Wraps a queue pair that was connected by other means (connect.h). `queue` was created on
  // `events`, serves nothing else and has entries for all sends and receives; nothing is
  // outstanding. kInvalidArgument if the queue pair or the queue is shorter than `options`
  // requires, if they do not belong together, or if the queue pair has a shared receive queue.
  static Result<Channel> adopt(CompletionChannel events, CompletionQueue queue, QueuePair qp,
                               const ChannelOptions& options);
  // A moved-from channel may be assigned to or destroyed. Any other call on it ends the process
  // with an error message.
  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();  // REQUIRES: no scope is open

  // Blocking operations. On success the operation has finished and the buffer belongs to the
  // caller. On an error the buffer also belongs to the caller, and the channel is broken unless
  // nothing was posted (kBusy, kInvalidArgument). Other errors: kTimeout, and what explain()
  // derives from a completion. For a send or write Error::write states whether it may have
  // happened.
  Status send(const RegisteredSpan& message, const Deadline& deadline);
  Status send_immediate(const RegisteredSpan& message, std::uint32_t immediate,
                        const Deadline& deadline);
  Result<Done> receive(const RegisteredSpan& buffer, const Deadline& deadline);
  Status write(const RegisteredSpan& from, const RemoteSpan& to, const Deadline& deadline);
  Status write_immediate(const RegisteredSpan& from, const RemoteSpan& to, std::uint32_t immediate,
                         const Deadline& deadline);
  Status read(const RegisteredSpan& to, const RemoteSpan& from, const Deadline& deadline);
  // Atomics. Return the word's old value, which the device writes to the 8 bytes of `old_value`.
  Result<std::uint64_t> compare_swap(const RegisteredSpan& old_value, const RemoteSpan& word,
                                     std::uint64_t expected, std::uint64_t desired,
                                     const Deadline& deadline);
  Result<std::uint64_t> fetch_add(const RegisteredSpan& old_value, const RemoteSpan& word,
                                  std::uint64_t addend, const Deadline& deadline);
  Result<Done> run(const Work& work, const Deadline& deadline);
  // Posts a receive ahead. The next receive() of the same buffer waits for it instead of posting
  // another. So a message that comes before receive() is called finds its buffer. Does not block.
  // kBusy, kDisconnected. It is outstanding like any operation: no scope and no read_all() begins
  // before it was received.
  Status expect(const RegisteredSpan& buffer);

  // Executes all READs of a plan (read_plan.h), as many at a time as the plan allows. Blocks. Not
  // within a scope. An error breaks the channel unless nothing was posted (kInvalidArgument). If
  // the peer of a channel by address leaves: kDisconnected, without waiting for the deadline.
  Status read_all(const ReadPlan& plan, const Deadline& deadline);
  // The limits to plan READs with. Makes system calls. REQUIRES: as queue_pair().
  Result<ReadPlanLimits> read_limits();

  // Calls body(Scope&), waits until the deadline for everything outstanding, then cuts off the
  // rest. An exception of the body is propagated after that; the outcome of the operations is then
  // available only from broken() and why_broken(). REQUIRES: no other scope of the channel is open.
  template <class F>
    requires detail::ScopeBody<F, Scope>
  auto scope(const Deadline& deadline, F&& body) {
    return enter<false>(deadline, std::forward<F>(body));
  }
  // Like scope(), for bodies that take the result of every operation. If the body returns success
  // with an operation that was neither waited for nor covered by wait_posted(), the process ends.
  template <class F>
    requires detail::ScopeBody<F, Scope>
  auto strict_scope(const Deadline& deadline, F&& body) {
    return enter<true>(deadline, std::forward<F>(body));
  }

  // The protection domain that the channel's memory is registered in. REQUIRES: as queue_pair().
  ProtectionDomain domain() const;
  // For channels by address (dial.h): the bytes that the peer sent when it connected, padded with
  // zeros.
  Bytes peer_data() const;
  // Waits until the peer disconnects. Blocks. Fails with kTimeout; other errors say how the
  // connection ended. Receives that were expected stay outstanding. REQUIRES: a channel by address.
  Status wait_until_peer_leaves(const Deadline& deadline);
  // Tells the peer, and ends the channel: outstanding operations complete as flushed. Does not wait
  // for the peer. The destructor does the same. Only the destructor reaches a peer whose handshake
  // is not finished. REQUIRES: a channel by address.
  Status disconnect();

  bool broken() const;
  // The first failure. REQUIRES: broken().
  Error why_broken() const;
  std::uint32_t outstanding() const;
  // The queue pair, for posting by hand. The caller polls work posted by hand before using the
  // channel again. REQUIRES: the queue pair was not destroyed by a cut-off.
  QueuePair& queue_pair();

 private:
  friend class PreparedChannel;
  friend struct detail::ChannelAccess;
  explicit Channel(std::unique_ptr<detail::ChannelState> state);
  static void check_seen(bool seen);

  template <bool strict, class F>
  auto enter(const Deadline& deadline, F&& body) {
    using T = std::invoke_result_t<F&, Scope&>;
    Scope scope(state(), deadline);
    if constexpr (std::is_void_v<T>) {
      std::forward<F>(body)(scope);
      if constexpr (strict) check_seen(scope.unseen() == 0);
      Scoped<void> out;
      out.operations = scope.leave(out.cut_off_count);
      return out;
    } else {
      Scoped<std::remove_cvref_t<T>> out{
          .operations = {}, .cut_off_count = 0, .value = std::forward<F>(body)(scope)};
      if constexpr (strict) check_seen(scope.unseen() == 0 || !detail::succeeded(out.value));
      out.operations = scope.leave(out.cut_off_count);
      return out;
    }
  }

  detail::ChannelState& state() const;
  std::unique_ptr<detail::ChannelState> state_;
};

// A channel that is not connected yet. connect() turns it into a Channel.
class RKV_EXPORT PreparedChannel {
 public:
  // Creates it on the first active port with that port's routable GID.
  static Result<PreparedChannel> create(const ProtectionDomain& pd, const ChannelOptions& options);
  static Result<PreparedChannel> create(const ProtectionDomain& pd, std::uint8_t port,
                                        const GidEntry& gid, const ChannelOptions& options);

  const Endpoint& endpoint() const { return endpoint_; }  // for the peer
  // Connects to `peer`. Does not wait for the peer: a message sent before the peer has connected is
  // lost and retransmitted, for about half a second. Synchronize both sides. On an error `*this` is
  // unchanged.
  Result<Channel> connect(const Endpoint& peer, const ConnectionParameters& parameters) &&;

 private:
  PreparedChannel(CompletionChannel events, CompletionQueue queue, PreparedQueuePair<Rc> qp,
                  const Endpoint& endpoint, const ChannelOptions& options)
      : events_(std::move(events)),
        queue_(std::move(queue)),
        qp_(std::move(qp)),
        endpoint_(endpoint),
        options_(options) {}
  CompletionChannel events_;
  CompletionQueue queue_;
  PreparedQueuePair<Rc> qp_;
  Endpoint endpoint_;
  ChannelOptions options_;
};

}  // namespace rkv::rdma
