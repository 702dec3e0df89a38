#include "rkv/rdma/efa.h"

#include <infiniband/efadv.h>

#include <algorithm>
#include <cerrno>

#include "rdma/core/queue/queue_pair_state.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {

Result<EfaAttributes> efa_attributes(const Device& device) {
  efadv_device_attr raw{};
  RKV_RETURN_IF_ERROR(
      from_errno("efadv_query_device", efadv_query_device(device.raw(), &raw, sizeof raw)));
  return EfaAttributes{
      .max_send_requests = raw.max_sq_wr,
      .max_receive_requests = raw.max_rq_wr,
      .max_send_sge = raw.max_sq_sge,
      .max_receive_sge = raw.max_rq_sge,
      .max_inline_bytes = raw.inline_buf_size,
      .max_read_bytes = raw.max_rdma_size,
      .reads = (raw.device_caps & EFADV_DEVICE_ATTR_CAPS_RDMA_READ) != 0,
      .rnr_retries = (raw.device_caps & EFADV_DEVICE_ATTR_CAPS_RNR_RETRY) != 0,
  };
}

Result<SrdQueuePair> SrdQueuePair::create(const ProtectionDomain& pd, const CompletionQueue& sends,
                                          const CompletionQueue& receives,
                                          const SrdOptions& options) {
  RKV_ASSIGN_OR_RETURN(const EfaAttributes limits, efa_attributes(pd.device()));
  auto state = std::make_unique<detail::QueuePairState>(pd.device());
  state->domain = pd.shared();
  state->sends = sends.shared();
  state->receives = receives.shared();
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_type = IBV_QPT_DRIVER;
  wanted.send_cq = sends.raw();
  wanted.recv_cq = receives.raw();
  wanted.cap = {.max_send_wr = options.send_length,
                .max_recv_wr = options.receive_length,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = options.inline_bytes};
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.pd = pd.raw();
  wanted.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  if (limits.reads) wanted.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ;
  efadv_qp_init_attr kind{};
  kind.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
  errno = 0;
  RKV_ASSIGN_OR_RETURN(
      state->queue, from_null("efadv_create_qp_ex",
                              efadv_create_qp_ex(pd.device().raw(), &wanted, &kind, sizeof kind)));
  state->send_length = wanted.cap.max_send_wr;
  SrdQueuePair out;
  out.state_ = std::move(state);
  out.limits_.inline_bytes = std::min(wanted.cap.max_inline_data, detail::kMaxInlineBytes);
  out.has_reads_ = limits.reads;
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(out.raw());
  if (extended == nullptr) return verb_error("ibv_qp_to_qp_ex", EOPNOTSUPP);
  detail::refuse_the_rest(*extended);
  out.extended_ = extended;
  RKV_RETURN_IF_ERROR(out.activate(options));
  return out;
}

// The same steps as for unreliable datagrams.
Status SrdQueuePair::activate(const SrdOptions& options) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = options.port;
  init.qkey = options.qkey;
  RKV_RETURN_IF_ERROR(modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  RKV_RETURN_IF_ERROR(modify(receive, IBV_QP_STATE));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  return modify(send, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

}  // namespace rkv::rdma
