#include "rkv/rdma/queue_pair.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/random.h"
#include "rkv/rdma/transitions.h"

namespace rkv::rdma {
namespace detail {

struct QueuePairState {
  Device device;
  std::shared_ptr<ibv_pd> domain;
  std::shared_ptr<CompletionQueueState> sends;
  std::shared_ptr<CompletionQueueState> receives;
  std::shared_ptr<ibv_srq> shared_receives;
  std::uint32_t send_length = 0;
  ibv_qp* queue = nullptr;

  explicit QueuePairState(const Device& from) : device(from.share()) {}
  QueuePairState(const QueuePairState&) = delete;
  QueuePairState& operator=(const QueuePairState&) = delete;
  ~QueuePairState() {
    if (queue != nullptr) report_teardown(from_errno("ibv_destroy_qp", ibv_destroy_qp(queue)));
  }
};

}  // namespace detail

namespace {

constexpr std::size_t kMaxSge = 32;
constexpr std::size_t kMaxInlineBytes = 1024;
constexpr std::uint32_t kPacketSequenceMask = 0xFF'FFFF;

ibv_mtu mtu_of(std::uint32_t bytes) {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

Status post_list(ibv_qp* queue, ibv_send_wr request, std::span<const RegisteredSpan> pieces) {
  std::array<ibv_sge, kMaxSge> list;
  RKV_CHECK(pieces.size() <= list.size(), "too many pieces in one request");
  std::ranges::transform(pieces, list.begin(), [](const RegisteredSpan& s) { return s.sge(); });
  request.sg_list = list.data();
  request.num_sge = static_cast<int>(pieces.size());
  ibv_send_wr* refused = nullptr;
  return from_errno("ibv_post_send", ibv_post_send(queue, &request, &refused));
}

}  // namespace

void Batch::write_immediate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& from,
                            const RemoteSpan& to, std::uint32_t immediate) {
  begin(wr_id, flags, to, from.size());
  ibv_wr_rdma_write_imm(queue_, to.rkey, to.address, htonl(immediate));
  set(from);
}

void Batch::send_immediate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message,
                           std::uint32_t immediate) {
  begin(wr_id, flags);
  ibv_wr_send_imm(queue_, htonl(immediate));
  set(message);
}

// The inline flag must be in wr_flags before the operation is chosen: SoftRoCE decides by it where
// it puts the bytes, and without it the queue pair dies.
void Batch::send_inline(std::uint64_t wr_id, OpFlags flags, Bytes message) {
  RKV_CHECK(message.size() <= inline_bytes_, "an inline message is longer than inline_bytes()");
  begin(wr_id, flags);
  queue_->wr_flags |= IBV_SEND_INLINE;
  ibv_wr_send(queue_);
  ibv_wr_set_inline_data(queue_, const_cast<std::byte*>(message.data()), message.size());
}

void Batch::write_inline(std::uint64_t wr_id, OpFlags flags, Bytes from, const RemoteSpan& to) {
  RKV_CHECK(from.size() <= inline_bytes_, "an inline message is longer than inline_bytes()");
  begin(wr_id, flags, to, from.size());
  queue_->wr_flags |= IBV_SEND_INLINE;
  ibv_wr_rdma_write(queue_, to.rkey, to.address);
  ibv_wr_set_inline_data(queue_, const_cast<std::byte*>(from.data()), from.size());
}

// Not ibv_wr_set_inline_data_list: SoftRoCE's delivers an empty message and reports success.
void Batch::send_inline(std::uint64_t wr_id, OpFlags flags, std::span<const Bytes> pieces) {
  std::array<std::byte, kMaxInlineBytes> gathered;
  std::size_t length = 0;
  for (const Bytes piece : pieces) {
    RKV_CHECK(piece.size() <= inline_bytes_ - length,
              "an inline message is longer than inline_bytes()");
    if (!piece.empty()) std::memcpy(gathered.data() + length, piece.data(), piece.size());
    length += piece.size();
  }
  send_inline(wr_id, flags, Bytes(gathered).first(length));
}

Status Batch::submit() && {
  RKV_CHECK(queue_ != nullptr, "a batch submitted twice");
  ibv_qp_ex* queue = std::exchange(queue_, nullptr);
  if (count_ == 0) {
    ibv_wr_abort(queue);
    return {};
  }
  return from_errno("ibv_wr_complete", ibv_wr_complete(queue));
}

QueuePair::QueuePair(std::unique_ptr<detail::QueuePairState> state) : state_(std::move(state)) {}
QueuePair::QueuePair(QueuePair&&) noexcept = default;
QueuePair& QueuePair::operator=(QueuePair&&) noexcept = default;
QueuePair::~QueuePair() = default;

Result<QueuePair> QueuePair::create(const ProtectionDomain& pd, const CompletionQueue& sends,
                                    const CompletionQueue& receives,
                                    const QueuePairOptions& options) {
  if (options.inline_bytes > kMaxInlineBytes) {
    return fail(Code::kInvalidArgument, "inline messages are at most 1024 bytes long");
  }
  auto state = std::make_unique<detail::QueuePairState>(pd.device());
  state->domain = pd.shared();
  state->sends = sends.shared();
  state->receives = receives.shared();
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = sends.raw();
  wanted.recv_cq = receives.raw();
  wanted.cap.max_send_wr = options.send_length;
  wanted.cap.max_send_sge = options.send_sge;
  wanted.cap.max_inline_data = options.inline_bytes;
  if (options.shared != nullptr) {
    state->shared_receives = options.shared->shared();
    wanted.srq = options.shared->raw();
  } else {
    wanted.cap.max_recv_wr = options.receive_length;
    wanted.cap.max_recv_sge = options.receive_sge;
  }
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.pd = pd.raw();
  wanted.send_ops_flags = std::to_underlying(options.operations);
  errno = 0;
  RKV_ASSIGN_OR_RETURN(state->queue,
                       from_null("ibv_create_qp_ex", ibv_create_qp_ex(pd.device().raw(), &wanted)));
  state->send_length = wanted.cap.max_send_wr;
  QueuePair out(std::move(state));
  out.inline_bytes_ = std::min<std::uint32_t>(wanted.cap.max_inline_data, kMaxInlineBytes);
  out.extended_ = ibv_qp_to_qp_ex(out.raw());
  if (out.extended_ == nullptr) return verb_error("ibv_qp_to_qp_ex", EOPNOTSUPP);
  return out;
}

Status QueuePair::post_receives(std::span<const ReceiveRequest> requests) {
  constexpr std::size_t kChain = 32;
  std::array<ibv_sge, kChain> pieces;
  std::array<ibv_recv_wr, kChain> chain;
  while (!requests.empty()) {
    const auto now = requests.first(std::min(kChain, requests.size()));
    for (std::size_t i = 0; i < now.size(); ++i) {
      pieces[i] = now[i].buffer.sge();
      chain[i] = {.wr_id = now[i].wr_id,
                  .next = i + 1 < now.size() ? &chain[i + 1] : nullptr,
                  .sg_list = &pieces[i],
                  .num_sge = 1};
    }
    ibv_recv_wr* refused = nullptr;
    RKV_RETURN_IF_ERROR(from_errno("ibv_post_recv", ibv_post_recv(raw(), &chain[0], &refused)));
    requests = requests.subspan(now.size());
  }
  return {};
}

Status QueuePair::post_read(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> to,
                            const RemoteSpan& from) {
  std::size_t length = 0;
  for (const RegisteredSpan& piece : to)
    length += piece.size();
  RKV_CHECK(length <= from.length, "a request reaches past its remote span");
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = std::to_underlying(flags);
  request.wr.rdma = {.remote_addr = from.address, .rkey = from.rkey};
  return post_list(raw(), request, to);
}

Status QueuePair::post_send(std::uint64_t wr_id, OpFlags flags,
                            std::span<const RegisteredSpan> message) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = IBV_WR_SEND;
  request.send_flags = std::to_underlying(flags);
  return post_list(raw(), request, message);
}

Status QueuePair::modify(ibv_qp_attr attributes, int mask) {
  const int answer = ibv_modify_qp(raw(), &attributes, mask);
  Status changed = from_errno("ibv_modify_qp", answer);
  if (answer != EINVAL) return changed;
  const auto now = state();
  if (!now) return changed;
  Error error = changed.error();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : *now;
  const TransitionVerdict verdict = judge_transition(raw()->qp_type, *now, to, mask);
  if (verdict.ok()) {
    error.text = "a value is wrong, or the device does not take one of these attributes";
  } else if (verdict.exists) {
    error.text = "the mask is wrong for this change of state: explain_modify() names the bits";
  } else {
    error.text = "there is no such change of state: explain_modify() names the two";
  }
  return std::unexpected(error);
}

Result<std::string> QueuePair::explain_modify(const ibv_qp_attr& attributes, int mask) const {
  RKV_ASSIGN_OR_RETURN(const ibv_qp_state now, state());
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : now;
  return describe_transition(raw()->qp_type, now, to, mask);
}

Status QueuePair::set_remote_access(AccessFlags access) {
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = std::to_underlying(access);
  return modify(attributes, IBV_QP_ACCESS_FLAGS);
}

Status QueuePair::to_error() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return modify(attributes, IBV_QP_STATE);
}

Result<QueuePair::Queried> QueuePair::query(int mask) const {
  Queried out{};
  RKV_RETURN_IF_ERROR(
      from_errno("ibv_query_qp", ibv_query_qp(raw(), &out.attributes, mask, &out.created)));
  return out;
}

Result<ibv_qp_state> QueuePair::state() const {
  RKV_ASSIGN_OR_RETURN(const Queried found, query(IBV_QP_STATE));
  return found.attributes.qp_state;
}

Result<Endpoint> QueuePair::endpoint(std::uint8_t port, const GidEntry& gid) const {
  RKV_ASSIGN_OR_RETURN(const PortAttributes attributes, device().port(port));
  return Endpoint{
      .qp_num = number(),
      .packet_sequence = static_cast<std::uint32_t>(random_from_kernel()) & kPacketSequenceMask,
      .lid = attributes.lid,
      .gid = gid.gid,
      .mtu_bytes = attributes.active_mtu_bytes};
}

Status QueuePair::connect_directly(std::uint8_t port, const GidEntry& gid, const Endpoint& self,
                                   const Endpoint& peer, const ConnectionParameters& parameters) {
  if (gid.index > 255) {
    return fail(Code::kUnsupported, "the queue pair's address holds GID indexes up to 255");
  }
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, device().attributes());
  RKV_ASSIGN_OR_RETURN(const PortAttributes link, device().port(port));
  const ReadDepths depths = read_depths(parameters, limits);
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = port;
  init.qp_access_flags = std::to_underlying(parameters.remote_access);
  RKV_RETURN_IF_ERROR(
      modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));

  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = mtu_of(std::min(self.mtu_bytes, peer.mtu_bytes));
  receive.dest_qp_num = peer.qp_num;
  receive.rq_psn = peer.packet_sequence & kPacketSequenceMask;
  receive.max_dest_rd_atomic = depths.responder;
  receive.min_rnr_timer = parameters.rnr_timer.code();
  receive.ah_attr.port_num = port;
  receive.ah_attr.dlid = peer.lid;
  receive.ah_attr.is_global = link.ethernet || peer.lid == 0 ? 1 : 0;
  receive.ah_attr.grh.hop_limit = 64;
  receive.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid.index);
  std::memcpy(receive.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  RKV_RETURN_IF_ERROR(modify(receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                          IBV_QP_MIN_RNR_TIMER));

  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = parameters.ack_timeout.code();
  send.retry_cnt = std::min(parameters.retry_count, kMaxRetryCount);
  send.rnr_retry = parameters.rnr_retry;
  send.sq_psn = self.packet_sequence & kPacketSequenceMask;
  send.max_rd_atomic = depths.initiator;
  return modify(send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

std::uint32_t QueuePair::number() const {
  return raw()->qp_num;
}
std::uint32_t QueuePair::send_length() const {
  return state_->send_length;
}
bool QueuePair::has_shared_receive_queue() const {
  return state_->shared_receives != nullptr;
}
const Device& QueuePair::device() const {
  return state_->device;
}
ibv_qp* QueuePair::raw() const {
  return state_->queue;
}

ReadDepths read_depths(const ConnectionParameters& parameters, const DeviceAttributes& device) {
  static constexpr std::uint32_t kMost = 254;
  const auto choose = [](std::uint8_t wanted, std::uint32_t most) {
    most = std::min(most, kMost);
    return static_cast<std::uint8_t>(wanted == 0 ? most : std::min<std::uint32_t>(wanted, most));
  };
  return {.initiator = choose(parameters.reads_as_initiator, device.max_reads_as_initiator),
          .responder = choose(parameters.reads_as_responder, device.max_reads_as_responder)};
}

}  // namespace rkv::rdma
