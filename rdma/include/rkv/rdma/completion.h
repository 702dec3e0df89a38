// Completion queues: where the device says what it has done.
//
//   RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
//   RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
//       CompletionQueue::create(device, {.entries = 256, .channel = &channel}));
//   std::array<WorkCompletion, 32> done;
//   RKV_ASSIGN_OR_RETURN(std::size_t count, queue.wait(done, deadline));
//
// Thread safety: one thread at a time for a channel and all queues on it. Several queues may share
// a channel when one thread waits for all of them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/domain.h"
#include "rkv/result.h"

namespace rkv::rdma {

enum class WorkKind : unsigned char {
  kSend,
  kWrite,
  kRead,
  kCompareSwap,
  kFetchAdd,
  kReceive,
  kReceiveOfWrite,  // a WRITE with immediate data consumed a receive
  kOther,
};

// One completion. When status is not IBV_WC_SUCCESS only wr_id, qp_num, status and vendor_error say
// anything (ibv_poll_cq(3)); the rest is zero then.
struct WorkCompletion {
  std::uint64_t wr_id = 0;
  std::uint32_t qp_num = 0;
  std::uint32_t byte_length = 0;  // receives and READs
  std::uint32_t immediate = 0;    // host byte order
  std::uint32_t vendor_error = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  WorkKind kind = WorkKind::kOther;
  bool has_immediate = false;
  bool has_invalidated = false;  // the peer sent with invalidate: `immediate` is the window's key
  bool ok() const { return status == IBV_WC_SUCCESS; }
};
static_assert(sizeof(WorkCompletion) == 32, "half a cache line");

namespace detail {
struct ChannelState;
struct CompletionQueueState;
}  // namespace detail

class RKV_EXPORT CompletionChannel {
 public:
  // ibv_create_comp_channel(3); the descriptor is non-blocking and closed on exec.
  static Result<CompletionChannel> create(const Device& device);
  CompletionChannel(CompletionChannel&&) = default;
  CompletionChannel& operator=(CompletionChannel&&) = default;

  // Readable when an armed queue got a completion. For poll(2), epoll(7).
  int fd() const;
  // Takes all pending events, of every queue on the channel; returns how many. Does not block.
  // Events are acknowledged in batches, the rest before the queue is destroyed.
  Result<std::size_t> drain();
  ibv_comp_channel* raw() const;

 private:
  friend class CompletionQueue;
  explicit CompletionChannel(std::shared_ptr<detail::ChannelState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<detail::ChannelState> state_;
};

struct CompletionQueueOptions {
  // At least this many completions fit. The queue must never hold more: sum up the work that may be
  // outstanding on all queue pairs, receives included, because an overrun kills the queue.
  std::uint32_t entries = 256;
  CompletionChannel* channel = nullptr;  // needed for arm() and wait()
  std::uint32_t vector = 0;              // interrupt vector
  // A parent domain, whose thread domain then spares the queue its locks too. A provider that has
  // none may ignore it (SoftRoCE) or refuse.
  const ProtectionDomain* domain = nullptr;
};

class RKV_EXPORT CompletionQueue {
 public:
  // An extended queue where the provider has them, else a plain one (ibv_create_cq_ex(3)).
  static Result<CompletionQueue> create(const Device& device,
                                        const CompletionQueueOptions& options);
  CompletionQueue(CompletionQueue&&) = default;
  CompletionQueue& operator=(CompletionQueue&&) = default;

  // Fills `out` with what is there; returns how many. No system call, does not block. An error
  // means that the queue itself is broken (overrun, device gone).
  Result<std::size_t> poll(std::span<WorkCompletion> out);
  // Asks for one event on the channel at the next completion (ibv_req_notify_cq(3)). What arrived
  // before the call raises none: arm, then poll once more, and only then wait.
  Status arm(bool solicited_only = false);
  // Waits in that order until there is something or the deadline has passed (then 0). Blocks.
  Result<std::size_t> wait(std::span<WorkCompletion> out, const Deadline& deadline);

  std::uint32_t entries() const;
  bool extended() const { return extended_ != nullptr; }
  ibv_cq* raw() const;
  const std::shared_ptr<detail::CompletionQueueState>& shared() const { return state_; }

 private:
  explicit CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state);
  Result<std::size_t> poll_plain(std::span<WorkCompletion> out);
  std::shared_ptr<detail::CompletionQueueState> state_;
  ibv_cq_ex* extended_ = nullptr;
  bool one_by_one_ = false;
};

// Waits until `fd` is readable; false when the deadline passed first. Blocks. poll(2).
RKV_EXPORT Result<bool> wait_readable(int fd, const Deadline& deadline);

}  // namespace rkv::rdma
