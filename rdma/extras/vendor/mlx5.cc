#include "rkv/rdma/mlx5.h"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rdma/core/queue/queue_pair_state.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

constexpr std::uint32_t kMaxGidIndex = 255;

using State = std::unique_ptr<detail::QueuePairState>;

// Attributes common to initiator and target. `wanted` receives the granted values.
Result<State> make(const ProtectionDomain& pd, ibv_qp_init_attr_ex& wanted,
                   mlx5dv_qp_init_attr& kind) {
  if (!is_mlx5(pd.device())) return verb_error("mlx5dv_create_qp", EOPNOTSUPP);
  auto state = std::make_unique<detail::QueuePairState>(pd.device());
  state->domain = pd.shared();
  wanted.qp_type = IBV_QPT_DRIVER;
  wanted.comp_mask |= IBV_QP_INIT_ATTR_PD;
  wanted.pd = pd.raw();
  kind.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  errno = 0;
  RKV_ASSIGN_OR_RETURN(
      state->queue,
      from_null("mlx5dv_create_qp", mlx5dv_create_qp(pd.device().raw(), &wanted, &kind)));
  state->send_length = wanted.cap.max_send_wr;
  return state;
}

// The path of a queue pair without a peer: only the source is set.
Result<ibv_ah_attr> path(const Device& device, std::uint8_t port, std::uint32_t gid_index) {
  if (gid_index > kMaxGidIndex) {
    return fail(Code::kInvalidArgument, "gid_index is 0 to 255");
  }
  RKV_ASSIGN_OR_RETURN(const PortAttributes link, device.port(port));
  ibv_ah_attr out{};
  out.port_num = port;
  if (link.ethernet) {
    out.is_global = 1;
    out.grh.hop_limit = 64;
    out.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  }
  return out;
}

}  // namespace

bool is_mlx5(const Device& device) {
  return mlx5dv_is_supported(device.raw()->device);
}

void DcBatch::address(const DcDestination& to) {
  mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(queue_), to.handle, to.target, to.access_key);
}

Result<DcInitiator> DcInitiator::create(const ProtectionDomain& pd, const CompletionQueue& sends,
                                        const DcInitiatorOptions& options) {
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = sends.raw();
  wanted.recv_cq = sends.raw();
  wanted.cap.max_send_wr = options.send_length;
  wanted.cap.max_send_sge = 1;
  wanted.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.send_ops_flags = std::to_underlying(options.operations);
  mlx5dv_qp_init_attr kind{};
  kind.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  DcInitiator out;
  RKV_ASSIGN_OR_RETURN(out.state_, make(pd, wanted, kind));
  out.state_->sends = sends.shared();
  out.limits_.inline_bytes = std::min(wanted.cap.max_inline_data, detail::kMaxInlineBytes);
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(out.raw());
  if (extended == nullptr) return verb_error("ibv_qp_to_qp_ex", EOPNOTSUPP);
  detail::refuse_the_rest(*extended);
  out.extended_ = extended;
  RKV_RETURN_IF_ERROR(out.activate(options));
  return out;
}

Status DcInitiator::activate(const DcInitiatorOptions& options) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = options.port;
  RKV_RETURN_IF_ERROR(modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT));
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = detail::to_verbs(options.mtu);
  RKV_ASSIGN_OR_RETURN(receive.ah_attr, path(device(), options.port, options.gid_index));
  RKV_RETURN_IF_ERROR(modify(receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = options.ack_timeout.code();
  send.retry_cnt = options.retry_count;
  send.rnr_retry = options.rnr_retry;
  send.max_rd_atomic = options.reads;
  return modify(send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

Result<DcTarget> DcTarget::create(const ProtectionDomain& pd, const CompletionQueue& receives,
                                  const SharedReceiveQueue& shared,
                                  const DcTargetOptions& options) {
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = receives.raw();
  wanted.recv_cq = receives.raw();
  wanted.srq = shared.raw();
  mlx5dv_qp_init_attr kind{};
  kind.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  kind.dc_init_attr.dct_access_key = options.access_key;
  DcTarget out;
  RKV_ASSIGN_OR_RETURN(out.state_, make(pd, wanted, kind));
  out.state_->receives = receives.shared();
  out.state_->shared_receives = shared.shared();
  RKV_RETURN_IF_ERROR(out.activate(options));
  return out;
}

// The adapter creates the target and assigns its number at the transition to RTR, its final state.
Status DcTarget::activate(const DcTargetOptions& options) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = options.port;
  init.qp_access_flags = std::to_underlying(options.remote_access);
  RKV_RETURN_IF_ERROR(
      modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = detail::to_verbs(options.mtu);
  receive.min_rnr_timer = options.rnr_timer.code();
  RKV_ASSIGN_OR_RETURN(receive.ah_attr, path(device(), options.port, options.gid_index));
  return modify(receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER);
}

}  // namespace rkv::rdma
