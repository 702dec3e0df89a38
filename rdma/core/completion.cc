#include "rkv/rdma/completion.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "common/check.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace detail {

struct ChannelState {
  std::shared_ptr<ibv_context> context;
  ibv_comp_channel* channel;

  ChannelState(std::shared_ptr<ibv_context> owner, ibv_comp_channel* raw)
      : context(std::move(owner)), channel(raw) {}
  ChannelState(const ChannelState&) = delete;
  ChannelState& operator=(const ChannelState&) = delete;
  ~ChannelState() {
    report_teardown(from_errno("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel)));
  }
};

struct CompletionQueueState {
  // Acknowledging takes a lock inside libibverbs; once per this many events is enough.
  static constexpr unsigned kAckBatch = 16;

  std::shared_ptr<ibv_context> context;
  std::shared_ptr<ibv_pd> domain;  // where the queue belongs to a parent domain
  std::shared_ptr<ChannelState> channel;
  ibv_cq* queue = nullptr;
  ibv_cq_ex* extended = nullptr;
  unsigned unacknowledged = 0;
  // rdma-core's SoftRoCE provider ends the poll itself when ibv_next_poll finds nothing; the
  // ibv_end_poll that must follow then steps past a completion that has not come yet, and old ones
  // are delivered again. There, each completion is a poll of its own.
  bool one_by_one = false;

  CompletionQueueState() = default;
  CompletionQueueState(const CompletionQueueState&) = delete;
  CompletionQueueState& operator=(const CompletionQueueState&) = delete;
  ~CompletionQueueState() {
    if (queue == nullptr) return;
    acknowledge();  // ibv_destroy_cq waits for ever for an event that nobody acknowledged
    report_teardown(from_errno("ibv_destroy_cq", ibv_destroy_cq(queue)));
  }
  void acknowledge() {
    if (unacknowledged != 0) ibv_ack_cq_events(queue, unacknowledged);
    unacknowledged = 0;
  }
};

}  // namespace detail

namespace {

WorkKind kind_of(ibv_wc_opcode opcode) {
  switch (opcode) {
    case IBV_WC_SEND:
      return WorkKind::kSend;
    case IBV_WC_RDMA_WRITE:
      return WorkKind::kWrite;
    case IBV_WC_RDMA_READ:
      return WorkKind::kRead;
    case IBV_WC_COMP_SWAP:
      return WorkKind::kCompareSwap;
    case IBV_WC_FETCH_ADD:
      return WorkKind::kFetchAdd;
    case IBV_WC_RECV:
      return WorkKind::kReceive;
    case IBV_WC_RECV_RDMA_WITH_IMM:
      return WorkKind::kReceiveOfWrite;
    default:
      return WorkKind::kOther;
  }
}

// SoftRoCE's kernel side gives its own number for "with invalidate", which to users means something
// that it never does.
unsigned invalidate_flag(bool soft_roce) {
  return soft_roce ? IBV_WC_IP_CSUM_OK : IBV_WC_WITH_INV;
}

void fill(WorkCompletion& out, ibv_cq_ex* queue, bool soft_roce) {
  out = {.wr_id = queue->wr_id, .qp_num = ibv_wc_read_qp_num(queue), .status = queue->status};
  if (!out.ok()) {
    out.vendor_error = ibv_wc_read_vendor_err(queue);
    return;
  }
  out.kind = kind_of(ibv_wc_read_opcode(queue));
  out.byte_length = ibv_wc_read_byte_len(queue);
  const unsigned flags = ibv_wc_read_wc_flags(queue);
  if ((flags & IBV_WC_WITH_IMM) != 0) {
    out.has_immediate = true;
    out.immediate = ntohl(ibv_wc_read_imm_data(queue));
  } else if ((flags & invalidate_flag(soft_roce)) != 0) {
    out.has_invalidated = true;
    out.immediate = ibv_wc_read_invalidated_rkey(queue);
  }
}

void fill(WorkCompletion& out, const ibv_wc& from, bool soft_roce) {
  out = {.wr_id = from.wr_id, .qp_num = from.qp_num, .status = from.status};
  if (!out.ok()) {
    out.vendor_error = from.vendor_err;
    return;
  }
  out.kind = kind_of(from.opcode);
  out.byte_length = from.byte_len;
  if ((from.wc_flags & IBV_WC_WITH_IMM) != 0) {
    out.has_immediate = true;
    out.immediate = ntohl(from.imm_data);
  } else if ((from.wc_flags & invalidate_flag(soft_roce)) != 0) {
    out.has_invalidated = true;
    out.immediate = from.invalidated_rkey;
  }
}

}  // namespace

Result<bool> wait_readable(int fd, const Deadline& deadline) {
  for (;;) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, deadline.left_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return verb_error("poll", errno);
    if (deadline.passed()) return false;
  }
}

Result<CompletionChannel> CompletionChannel::create(const Device& device) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_comp_channel * raw,
                       from_null("ibv_create_comp_channel", ibv_create_comp_channel(device.raw())));
  auto state = std::make_shared<detail::ChannelState>(device.shared(), raw);
  const int flags = fcntl(raw->fd, F_GETFL);
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", flags));
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", fcntl(raw->fd, F_SETFL, flags | O_NONBLOCK)));
  RKV_RETURN_IF_ERROR(from_minus_one("fcntl", fcntl(raw->fd, F_SETFD, FD_CLOEXEC)));
  return CompletionChannel(std::move(state));
}

int CompletionChannel::fd() const {
  return state_->channel->fd;
}
ibv_comp_channel* CompletionChannel::raw() const {
  return state_->channel;
}

Result<std::size_t> CompletionChannel::drain() {
  for (std::size_t taken = 0;; ++taken) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(state_->channel, &queue, &context) != 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return taken;
      if (errno == EINTR) continue;
      return verb_error("ibv_get_cq_event", errno);
    }
    auto* state = static_cast<detail::CompletionQueueState*>(context);
    if (++state->unacknowledged >= detail::CompletionQueueState::kAckBatch) state->acknowledge();
  }
}

CompletionQueue::CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state)
    : state_(std::move(state)), extended_(state_->extended), one_by_one_(state_->one_by_one) {}

Result<CompletionQueue> CompletionQueue::create(const Device& device,
                                                const CompletionQueueOptions& options) {
  auto state = std::make_shared<detail::CompletionQueueState>();
  state->context = device.shared();
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, device.attributes());
  state->one_by_one = limits.soft_roce;
  if (options.channel != nullptr) state->channel = options.channel->state_;
  ibv_comp_channel* channel = state->channel != nullptr ? state->channel->channel : nullptr;
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = options.entries;
  wanted.cq_context = state.get();
  wanted.channel = channel;
  wanted.comp_vector = options.vector;
  if (options.domain != nullptr) {
    state->domain = options.domain->shared();
    wanted.parent_domain = options.domain->raw();
    wanted.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
  }
  wanted.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
  errno = 0;
  state->extended = ibv_create_cq_ex(device.raw(), &wanted);
  if (state->extended != nullptr) {
    state->queue = ibv_cq_ex_to_cq(state->extended);
    return CompletionQueue(std::move(state));
  }
  if ((errno != EOPNOTSUPP && errno != ENOSYS) || options.domain != nullptr) {
    return verb_error("ibv_create_cq_ex", errno != 0 ? errno : EIO);
  }
  RKV_ASSIGN_OR_RETURN(
      state->queue,
      from_null("ibv_create_cq",
                ibv_create_cq(device.raw(), static_cast<int>(options.entries), state.get(), channel,
                              static_cast<int>(options.vector))));
  return CompletionQueue(std::move(state));
}

Result<std::size_t> CompletionQueue::poll(std::span<WorkCompletion> out) {
  if (out.empty()) return 0U;
  if (extended_ == nullptr) return poll_plain(out);
  std::size_t count = 0;
  bool again = true;
  while (again && count < out.size()) {
    ibv_poll_cq_attr none{};
    const Result<bool> found = from_poll("ibv_start_poll", ibv_start_poll(extended_, &none));
    if (!found) {
      // What was read is good; a broken queue shows again at the next call.
      if (count != 0) return count;
      return std::unexpected(found.error());
    }
    if (!*found) return count;  // ibv_end_poll must not be called then
    fill(out[count++], extended_, one_by_one_);
    while (!one_by_one_ && count < out.size() && ibv_next_poll(extended_) == 0) {
      fill(out[count++], extended_, one_by_one_);
    }
    ibv_end_poll(extended_);
    again = one_by_one_;
  }
  return count;
}

Result<std::size_t> CompletionQueue::poll_plain(std::span<WorkCompletion> out) {
  std::array<ibv_wc, 32> raw;
  std::size_t count = 0;
  while (count < out.size()) {
    const auto room = std::min(raw.size(), out.size() - count);
    RKV_ASSIGN_OR_RETURN(
        const std::size_t found,
        from_count("ibv_poll_cq", ibv_poll_cq(state_->queue, static_cast<int>(room), raw.data())));
    for (std::size_t i = 0; i < found; ++i)
      fill(out[count++], raw[i], one_by_one_);
    if (found < room) break;
  }
  return count;
}

Status CompletionQueue::arm(bool solicited_only) {
  return from_errno("ibv_req_notify_cq", ibv_req_notify_cq(state_->queue, solicited_only ? 1 : 0));
}

Result<std::size_t> CompletionQueue::wait(std::span<WorkCompletion> out, const Deadline& deadline) {
  RKV_CHECK(state_->channel != nullptr, "wait() on a completion queue without a channel");
  RKV_CHECK(!out.empty(), "wait() without room for a completion");
  const Result<std::size_t> present = poll(out);
  if (!present || *present != 0) return present;
  for (;;) {
    // Arm before the poll that decides to sleep: a completion between poll and arm would raise no
    // event and nobody would wake up.
    RKV_RETURN_IF_ERROR(arm());
    const Result<std::size_t> found = poll(out);
    if (!found || *found != 0) return found;
    RKV_ASSIGN_OR_RETURN(const bool readable,
                         wait_readable(state_->channel->channel->fd, deadline));
    if (!readable) return poll(out);
    CompletionChannel channel(state_->channel);
    // All events at once: one left behind in the descriptor only costs an empty round, but one
    // taken and not counted would make destruction hang.
    RKV_RETURN_IF_ERROR(channel.drain());
  }
}

std::uint32_t CompletionQueue::entries() const {
  return static_cast<std::uint32_t>(state_->queue->cqe);
}
ibv_cq* CompletionQueue::raw() const {
  return state_->queue;
}

}  // namespace rkv::rdma
