// Completion queues: the device reports in them that work requests have completed.
//
//   RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
//   RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
//       CompletionQueue::create(device, {.entries = 256, .channel = &channel}));
//   RKV_ASSIGN_OR_RETURN(const WorkCompletion one, queue.wait_one(Deadline::in(5s)));
//   std::array<WorkCompletion, 32> done;
//   RKV_ASSIGN_OR_RETURN(std::size_t count, queue.wait(done, Deadline::in(5s)));
//
// Many queues may share one descriptor: next_event() returns the queue that has a completion.
//
//   while (true) {
//     RKV_ASSIGN_OR_RETURN(const auto event, channel.next_event());   // until there is none:
//     if (!event) break;                                              // works with EPOLLET too
//     auto& mine = *static_cast<Mine*>(event->context);
//     RKV_RETURN_IF_ERROR(mine.queue.arm());                          // then poll until empty
//     ...
//   }
//
// Thread safety: several threads may wait() at a time on queues that share a channel; no wake-up is
// lost among them. While threads wait() on a channel's queues, no other call may take its events
// (next_event(), drain()). One queue is polled by one thread at a time, and wait() polls too; only
// wait_event() may be called by several threads for one queue. A queue may be destroyed while
// another thread takes events of its channel.
// Source: ibv_create_cq_ex(3), ibv_poll_cq(3), ibv_req_notify_cq(3), ibv_get_cq_event(3).
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/domain.h"
#include "rkv/rdma/flags.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The kind of completed work. The numbers are those of verbs, so that no completion needs a
// translation. Other numbers are possible (ibv_wc_opcode in <infiniband/verbs.h>).
enum class WorkKind : std::uint8_t {
  kSend = IBV_WC_SEND,
  kWrite = IBV_WC_RDMA_WRITE,
  kRead = IBV_WC_RDMA_READ,
  kCompareSwap = IBV_WC_COMP_SWAP,
  kFetchAdd = IBV_WC_FETCH_ADD,
  kBindWindow = IBV_WC_BIND_MW,
  kLocalInvalidate = IBV_WC_LOCAL_INV,
  kReceive = IBV_WC_RECV,
  kReceiveOfWrite = IBV_WC_RECV_RDMA_WITH_IMM,  // a WRITE with immediate data consumed a receive
  kUnknown = 255,  // no verbs opcode: a completion that failed does not tell
};
namespace detail {
constexpr WorkKind work_kind(ibv_wc_opcode opcode) {
  return static_cast<WorkKind>(opcode);
}
}  // namespace detail

// One completion. If status is not IBV_WC_SUCCESS, only wr_id, qp_num, status and vendor_error are
// valid (ibv_poll_cq(3)); the other fields are zero.
struct WorkCompletion {
  std::uint64_t wr_id = 0;
  std::uint32_t qp_num = 0;
  std::uint32_t byte_length = 0;  // receives and READs
  std::uint32_t immediate = 0;    // host byte order
  std::uint32_t vendor_error = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  WorkKind kind = WorkKind::kUnknown;
  bool has_immediate = false;
  bool has_invalidated = false;  // the peer sent with invalidate: `immediate` is the window's key
  bool ok() const { return status == IBV_WC_SUCCESS; }
};
static_assert(sizeof(WorkCompletion) == 32, "half a cache line");

namespace detail {

// The completion flag of a SEND with invalidate. The kernel part of SoftRoCE reports a number of
// its own, which is IBV_WC_IP_CSUM_OK in user space. SoftRoCE does not have that feature.
constexpr unsigned invalidate_flag(bool soft_roce) {
  return soft_roce ? IBV_WC_IP_CSUM_OK : IBV_WC_WITH_INV;
}

// Writes every field once, in memory order.
[[gnu::always_inline]] inline void fill(WorkCompletion& out, ibv_cq_ex* queue, bool soft_roce) {
  const ibv_wc_status status = queue->status;
  out.wr_id = queue->wr_id;
  out.status = status;
  out.qp_num = ibv_wc_read_qp_num(queue);
  if (status != IBV_WC_SUCCESS) [[unlikely]] {
    out = {.wr_id = out.wr_id,
           .qp_num = out.qp_num,
           .vendor_error = ibv_wc_read_vendor_err(queue),
           .status = status};
    return;
  }
  out.kind = work_kind(ibv_wc_read_opcode(queue));
  out.byte_length = ibv_wc_read_byte_len(queue);
  out.immediate = 0;
  out.vendor_error = 0;
  out.has_immediate = false;
  out.has_invalidated = false;
  const unsigned flags = ibv_wc_read_wc_flags(queue);
  if ((flags & (IBV_WC_WITH_IMM | invalidate_flag(soft_roce))) == 0) [[likely]]
    return;
  out.has_immediate = (flags & IBV_WC_WITH_IMM) != 0;
  out.has_invalidated = !out.has_immediate;
  out.immediate =
      out.has_immediate ? ntohl(ibv_wc_read_imm_data(queue)) : ibv_wc_read_invalidated_rkey(queue);
}

// Replaces a queue that CompletionQueue::poll() cannot poll inline. Its start_poll returns
// kPolledOtherwise. So poll() finds out by a result that it tests anyway.
extern RKV_EXPORT ibv_cq_ex polled_otherwise;
inline constexpr int kPolledOtherwise = INT_MIN;  // no provider returns it

struct CompletionChannelState;
struct CompletionQueueState;

}  // namespace detail

// The result of a poll: the number of completions, or why the queue is broken. It is used like a
// Result, and converts to one. Unlike a Result, it is returned in a register.
class [[nodiscard]] Polled {
 public:
  // `answer`: a count.
  static Polled of_start_poll(std::int64_t answer) noexcept { return Polled(answer); }
  // ibv_start_poll's answer that is neither 0 nor ENOENT. mlx5's may be negative, without an errno.
  static Polled failed(int answer) noexcept {
    return Polled(answer > 0 ? -std::int64_t{answer} : -std::int64_t{EIO});
  }
  // A count, or a negative errno.
  static Polled of_poll_cq(std::int64_t answer) noexcept {
    return Polled(answer < 0 ? answer - kPollCq : answer);
  }
  explicit operator bool() const noexcept { return answer_ >= 0; }
  bool has_value() const noexcept { return answer_ >= 0; }
  // REQUIRES: has_value().
  std::size_t operator*() const noexcept { return static_cast<std::size_t>(answer_); }
  std::size_t value() const noexcept { return **this; }
  // REQUIRES: !has_value().
  RKV_EXPORT Error error() const noexcept;
  // NOLINTNEXTLINE(google-explicit-constructor): as a Result.
  operator Result<std::size_t>() const noexcept {
    if (answer_ < 0) [[unlikely]]
      return std::unexpected(error());
    return **this;
  }

 private:
  static constexpr std::int64_t kPollCq = std::int64_t{1} << 32;  // above every errno
  explicit Polled(std::int64_t answer) noexcept : answer_(answer) {}
  std::int64_t answer_;
};

class CompletionQueue;

// The queue of an event. If another thread destroys queues, the queue may no longer exist: compare
// `queue`, and dereference `context` only if its object still exists.
struct RKV_EXPORT CompletionEvent {
  void* context = nullptr;        // CompletionQueueOptions::context
  const ibv_cq* queue = nullptr;  // raw() of the queue
  bool is_of(const CompletionQueue& other) const;
};

class RKV_EXPORT CompletionChannel {
 public:
  // ibv_create_comp_channel(3); the descriptor is non-blocking and closed on exec.
  static Result<CompletionChannel> create(const Device& device);
  CompletionChannel(CompletionChannel&&) = default;
  CompletionChannel& operator=(CompletionChannel&&) = default;

  // Readable when an armed queue got a completion. For poll(2), epoll(7).
  int fd() const;
  // Returns the next event, or nothing; does not block. The event disarms its queue: arm it again,
  // then poll until it is empty. With an edge-triggered epoll take events until there are none,
  // since a descriptor that stays readable produces no edge. Events are acknowledged in batches,
  // the rest before the queue is destroyed. Source: ibv_get_cq_event(3).
  Result<std::optional<CompletionEvent>> next_event();
  // Takes all pending events of every queue on the channel and returns their number. Does not
  // block.
  Result<std::size_t> drain();
  ibv_comp_channel* raw() const;

 private:
  friend class CompletionQueue;
  explicit CompletionChannel(std::shared_ptr<detail::CompletionChannelState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<detail::CompletionChannelState> state_;
};

struct CompletionQueueOptions {
  // The queue has at least this many entries and must never hold more. Add up the work that may be
  // outstanding on all queue pairs, receives included, because an overrun breaks the queue.
  std::uint32_t entries = 256;
  CompletionChannel* channel = nullptr;  // needed for arm(), and for wait() to sleep
  std::uint32_t vector = 0;              // interrupt vector, below the device's number of vectors
  void* context = nullptr;               // returned by next_event()
};

// Fields of a completion. Every extended queue has the first four and kSlid to kPathBits. Creating
// a queue reports which of the others the device lacks.
enum class WcField : std::uint64_t {
  kNone = 0,
  kByteLength = IBV_WC_EX_WITH_BYTE_LEN,
  kImmediate = IBV_WC_EX_WITH_IMM,
  kQueuePair = IBV_WC_EX_WITH_QP_NUM,
  kSourceQueuePair = IBV_WC_EX_WITH_SRC_QP,  // datagrams: the sender
  kSlid = IBV_WC_EX_WITH_SLID,
  kServiceLevel = IBV_WC_EX_WITH_SL,
  kPathBits = IBV_WC_EX_WITH_DLID_PATH_BITS,
  kTimestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,            // in ticks of the device's clock
  kWallclock = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,  // in ns of the real-time clock
};
template <>
inline constexpr bool kIsFlagEnum<WcField> = true;
// The fields of ibv_poll_cq(3).
inline constexpr WcField kStandardFields = static_cast<WcField>(IBV_WC_STANDARD_FLAGS);
// The fields of WorkCompletion.
inline constexpr WcField kBasicFields =
    WcField::kByteLength | WcField::kImmediate | WcField::kQueuePair;
// "completion time stamp"; "?" unless it is a single field
RKV_EXPORT const char* to_string(WcField one);

class RKV_EXPORT CompletionQueue {
 public:
  // Creates an extended queue if the provider has them, else a plain one (ibv_create_cq_ex(3)).
  // kInvalidArgument names the option that exceeds the device's limits.
  static Result<CompletionQueue> create(const Device& device,
                                        const CompletionQueueOptions& options);
  CompletionQueue(CompletionQueue&&) = default;
  CompletionQueue& operator=(CompletionQueue&&) = default;

  // Fills `out` with available completions; returns their number. No system call, does not block.
  // An error means that the queue itself is broken (overrun, device removed). The success path is
  // inline: a call would cost more than the rest of a completion.
  Polled poll(std::span<WorkCompletion> out) noexcept;
  // Requests one event on the channel at the next completion (ibv_req_notify_cq(3)). Completions
  // that arrived before the call raise none: arm, then poll once more, and only then wait.
  Status arm(bool solicited_only = false);
  // Waits until there is a completion. Fills `out` with the available ones and returns their
  // number; 0 if the deadline passed first. Blocks. It polls again after arm() and before it
  // sleeps, so no wake-up is lost. A queue without a channel cannot sleep: it is polled until the
  // deadline, and the processor yielded after each poll that found nothing. REQUIRES: `out` is not
  // empty.
  Result<std::size_t> wait(std::span<WorkCompletion> out, const Deadline& deadline);
  // Waits until `out` is full and returns its size, or the smaller number of completions that came
  // before the deadline. An error (of the queue, as from poll()) hides those that came before it.
  // Otherwise as wait().
  Result<std::size_t> wait_all(std::span<WorkCompletion> out, const Deadline& deadline);
  // Waits for one completion. kTimeout if the deadline passed first. A failed completion becomes
  // the error wc_error(operation, status), without wr_id and queue pair: wait() returns those.
  // `operation` is a static text for errors, such as "RDMA READ". Otherwise as wait().
  Result<WorkCompletion> wait_one(const Deadline& deadline,
                                  const char* operation = "a work request");

  // For programs with their own loop around arm() and poll(). events() is the number of this
  // queue's events taken from the channel. wait_event() blocks until that number exceeds `seen`;
  // false if the deadline passed. wait() is: seen = events(); arm(); poll(); if that found nothing,
  // wait_event(seen).
  std::uint64_t events() const;
  Result<bool> wait_event(std::uint64_t seen, const Deadline& deadline);

  // Sets the number of entries to at least `entries`; completions in the queue stay.
  // kInvalidArgument if the queue holds more than `entries`, or if `entries` exceeds the device's
  // limit. REQUIRES: the queue is not polled meanwhile. ibv_resize_cq(3).
  Status resize(std::uint32_t entries);

  std::uint32_t entries() const;
  bool extended() const;
  WcField fields() const;  // the fields requested at creation
  ibv_cq* raw() const;
  const std::shared_ptr<detail::CompletionQueueState>& shared() const { return state_; }

 private:
  template <WcField>
  friend class ExtendedCompletionQueue;
  explicit CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state);
  static Result<CompletionQueue> create(const Device& device, const CompletionQueueOptions& options,
                                        WcField fields, bool classic);
  ibv_cq_ex* raw_extended() const;
  Polled poll_otherwise(std::span<WorkCompletion> out) noexcept;
  Result<std::size_t> poll_until(std::span<WorkCompletion> out, const Deadline& deadline);
  Polled poll_plain(std::span<WorkCompletion> out) const noexcept;
  Polled poll_one_by_one(std::span<WorkCompletion> out) const noexcept;
  std::shared_ptr<detail::CompletionQueueState> state_;
  ibv_cq_ex* extended_ = nullptr;
  // The same queue, if one poll may take several completions.
  ibv_cq_ex* chained_ = &detail::polled_otherwise;
  bool one_by_one_ = false;
};

inline Polled CompletionQueue::poll(std::span<WorkCompletion> out) noexcept {
  if (out.empty()) [[unlikely]]
    return Polled::of_start_poll(0);
  ibv_cq_ex* const queue = chained_;
  WorkCompletion* next = out.data();
  WorkCompletion* const end = next + out.size();
  ibv_poll_cq_attr none{};
  const int started = ibv_start_poll(queue, &none);
  if (started != 0) {  // ibv_end_poll must not be called then
    if (started == detail::kPolledOtherwise) [[unlikely]]
      return poll_otherwise(out);
    return started == ENOENT ? Polled::of_start_poll(0) : Polled::failed(started);
  }
  do {
    detail::fill(*next++, queue, false);
  } while (next != end && ibv_next_poll(queue) == 0);
  ibv_end_poll(queue);
  return Polled::of_start_poll(next - out.data());
}

// Waits until `fd` is readable; false when the deadline passed first. Blocks. poll(2).
RKV_EXPORT Result<bool> wait_readable(int fd, const Deadline& deadline);

}  // namespace rkv::rdma
