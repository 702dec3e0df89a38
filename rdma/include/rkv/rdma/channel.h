// A connection that looks after its own work: queue pair, completion queue, and who owns which
// buffer. Three ways to use it, from the simplest down:
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
// Buffers: whatever way a blocking operation or a scope ends - success, error, time-out, exception
// - the device names none of its buffers afterwards. What is still outstanding at the deadline is
// cut off: the queue pair goes to the error state, its work is drained, and where even that does
// not end, it is destroyed. So a time-out costs the connection; give short waits to
// Pending::wait(). Memory must be registered in the channel's protection domain and live that long,
// no longer.
//
// A failed operation ends the connection too, as verbs have it: broken() is true from then on, and
// all calls answer kDisconnected. connect() a new channel.
//
// Thread safety: one thread at a time for a channel and all that was got from it. Nothing here
// allocates or logs per operation; a wait polls some rounds and then sleeps.
// Source: ibv_create_qp_ex(3), ibv_wr_post(3), ibv_modify_qp(3), ibv_destroy_qp(3).
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
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

// One operation as a value, for lists of work. `local` is what is sent or written, or where the
// answer goes; atomics put the 8 bytes of the old value there.
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
  // An empty span takes messages without bytes: immediate data alone.
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

// What a finished operation says.
struct Done {
  std::uint32_t bytes = 0;      // receives and READs
  std::uint32_t immediate = 0;  // host byte order
  bool has_immediate = false;
};

namespace detail {
class ChannelState;
struct ChannelAccess;
}  // namespace detail

// An operation of a scope. It stays where it was made: neither copied nor moved, it cannot leave
// the closure. Dropped without a wait, the scope waits for it, and tells its error.
class RKV_EXPORT Pending {
 public:
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending();

  // Whether wait() would answer at once. Polls, does not block.
  bool finished();
  // Blocks until the operation has finished or the scope's deadline has passed. An operation that
  // could not be posted answers why: kBusy when as many are outstanding as the channel has room
  // for, kInvalidArgument, kDisconnected. kTimeout: it is still outstanding; wait again or leave
  // the scope. After another answer its buffer is the caller's. REQUIRES: not answered yet.
  Result<Done> wait();
  Result<Done> wait(const Deadline& deadline);

 private:
  friend class Scope;
  friend class GroupScope;
  Pending(detail::ChannelState& state, const Deadline& deadline, const Work& work);

  detail::ChannelState* state_;
  Deadline deadline_;
  std::uint32_t node_ = 0;
  std::uint32_t generation_ = 0;
  Error refused_;  // posted_ is false: why not
  bool posted_ = false;
  bool answered_ = false;
};

class Channel;

// The work of one closure. Made by Channel::scope() alone.
class RKV_EXPORT Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();  // leaves, where an exception ends the closure

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

  // Without a handle, for loops: all with one doorbell, or on an error none of the sends. kBusy as
  // above: wait_posted() makes room.
  Status post(std::span<const Work> work);
  // Waits for what was posted so, and for handles that were dropped; the first error among them,
  // which is then told nowhere else. kTimeout: some are still outstanding.
  Status wait_posted();
  Status wait_posted(const Deadline& deadline);

 private:
  friend class Channel;
  Scope(detail::ChannelState& state, const Deadline& deadline);
  // Operations that nobody looked at.
  std::uint32_t unseen() const;
  Status leave(std::uint32_t& cut_off);

  detail::ChannelState* state_;
  Deadline deadline_;
  bool left_ = false;
};

// How a scope ended: what the closure returned, and apart from it what became of the operations
// that the closure did not look at.
template <class T>
struct [[nodiscard]] Scoped {
  Status operations;                // the first error among them; kTimeout where some were cut off
  std::uint32_t cut_off_count = 0;  // outstanding at the deadline: they may have happened or not
  T value;
};
template <>
struct [[nodiscard]] Scoped<void> {
  Status operations;
  std::uint32_t cut_off_count = 0;
};

namespace detail {
// Handles, and the scope itself, stay inside.
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
  std::uint32_t sends = 32;        // outstanding operations other than receives
  std::uint32_t receives = 32;     // outstanding receives
  std::uint32_t send_sge = 4;      // pieces of a READ of read_all()
  std::uint32_t inline_bytes = 0;  // messages and WRITEs up to this length are copied when posted
  SendOps operations = kAllSendOps;
  // How long a queue pair in the error state may take to give its work back before it is destroyed.
  std::int64_t drain_ms = 1000;
};

class RKV_EXPORT Channel {
 public:
  // A queue pair that was connected otherwise (connect.h). `queue` was made on `events` and serves
  // nothing else, with room for all sends and receives; nothing is outstanding. kInvalidArgument
  // where the queue pair or the queue is shorter than `options` says, where they do not belong
  // together, and for a queue pair with a shared receive queue.
  static Result<Channel> adopt(CompletionChannel events, CompletionQueue queue, QueuePair qp,
                               const ChannelOptions& options);
  // What was moved from may be assigned to or destroyed; any other call on it ends the process with
  // a sentence.
  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();  // REQUIRES: no scope is open

  // Blocking operations. On success the operation has finished and the buffer is the caller's; on
  // an error it is too, and the channel is broken, unless nothing was posted (kBusy,
  // kInvalidArgument). kTimeout, and what explain() makes of a completion. For a send or write that
  // failed so, the error says whether it may have happened.
  Status send(const RegisteredSpan& message, const Deadline& deadline);
  Status send_immediate(const RegisteredSpan& message, std::uint32_t immediate,
                        const Deadline& deadline);
  Result<Done> receive(const RegisteredSpan& buffer, const Deadline& deadline);
  Status write(const RegisteredSpan& from, const RemoteSpan& to, const Deadline& deadline);
  Status write_immediate(const RegisteredSpan& from, const RemoteSpan& to, std::uint32_t immediate,
                         const Deadline& deadline);
  Status read(const RegisteredSpan& to, const RemoteSpan& from, const Deadline& deadline);
  // The word's old value, which passes through the 8 bytes of `old_value`.
  Result<std::uint64_t> compare_swap(const RegisteredSpan& old_value, const RemoteSpan& word,
                                     std::uint64_t expected, std::uint64_t desired,
                                     const Deadline& deadline);
  Result<std::uint64_t> fetch_add(const RegisteredSpan& old_value, const RemoteSpan& word,
                                  std::uint64_t addend, const Deadline& deadline);
  Result<Done> run(const Work& work, const Deadline& deadline);
  // All READs of a plan (read_plan.h), as many at a time as it allows. Not within a scope.
  Status read_all(const ReadPlan& plan, const Deadline& deadline);
  // What to plan with. System calls. REQUIRES: as queue_pair().
  Result<ReadPlanLimits> read_limits();

  // Calls body(Scope&), then waits until the deadline for everything that is outstanding, then cuts
  // off. An exception of the body goes on to the caller after that; what became of the operations
  // is then told by broken() and why_broken() alone. Scopes do not nest.
  template <class F>
    requires detail::ScopeBody<F, Scope>
  auto scope(const Deadline& deadline, F&& body) {
    return enter<false>(deadline, std::forward<F>(body));
  }
  // The same for bodies that look at every operation: to return, with success, while there is one
  // that was neither waited for nor covered by wait_posted() is a bug and ends the process.
  template <class F>
    requires detail::ScopeBody<F, Scope>
  auto strict_scope(const Deadline& deadline, F&& body) {
    return enter<true>(deadline, std::forward<F>(body));
  }

  bool broken() const;
  // Why: the first failure. REQUIRES: broken().
  Error why_broken() const;
  std::uint32_t outstanding() const;
  // REQUIRES: the queue pair was not destroyed by a cut; what is posted by hand is the caller's to
  // poll, before the channel is used again.
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

// A channel that knows no peer yet. It can only be connected.
class RKV_EXPORT PreparedChannel {
 public:
  // On the first active port, by its routable GID.
  static Result<PreparedChannel> create(const ProtectionDomain& pd, const ChannelOptions& options);
  static Result<PreparedChannel> create(const ProtectionDomain& pd, std::uint8_t port,
                                        const GidEntry& gid, const ChannelOptions& options);

  const Endpoint& endpoint() const { return endpoint_; }  // for the peer
  // Does not wait for the peer: what is sent before the peer has connected is lost and sent again,
  // some half a second long. Tell each other (group/node.h does). Where it fails, `this` is
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
