// From RESET to RTS without a connection manager: what endpoint(), handshake() and activate() do.
#include <algorithm>
#include <cstring>

#include "common/random.h"
#include "rdma/core/queue_pair_state.h"

namespace rkv::rdma {
namespace {

constexpr std::uint8_t kMaxRetry = 7;  // 3 bits
constexpr std::uint32_t kMaxGidIndex = 255;
constexpr std::uint32_t kMaxQueuePairNumber = 0xFF'FFFF;
constexpr std::uint8_t kHopLimit = 64;

ibv_mtu code_of(Mtu mtu) {
  switch (mtu) {
    case Mtu::k256:
      return IBV_MTU_256;
    case Mtu::k512:
      return IBV_MTU_512;
    case Mtu::k1024:
      return IBV_MTU_1024;
    case Mtu::k2048:
      return IBV_MTU_2048;
    default:
      return IBV_MTU_4096;
  }
}

// 0 stands for "did not say": one at a time is what every device answers.
std::uint8_t agreed(std::uint8_t own, std::uint8_t of_peer) {
  return std::min(own, of_peer == 0 ? std::uint8_t{1} : of_peer);
}

// The address of the peer, as a queue pair or an address handle wants it.
ibv_ah_attr address_of(const detail::QueuePairState::Local& local, const Endpoint& peer) {
  ibv_ah_attr out{};
  out.port_num = local.port;
  const bool ethernet = local.told.link_layer == LinkLayer::kEthernet;
  // Some RoCE adapters show a LID too: the link layer decides, not whether there is one.
  out.dlid = ethernet ? std::uint16_t{0} : peer.lid;
  out.is_global = ethernet || peer.lid == 0 ? 1 : 0;
  out.grh.hop_limit = kHopLimit;
  out.grh.sgid_index = static_cast<std::uint8_t>(local.gid.index);
  std::memcpy(out.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  return out;
}

Status check_peer(const Endpoint& self, const Endpoint& peer) {
  if (peer.qp_num > kMaxQueuePairNumber) {
    return fail(Code::kInvalidArgument, "the peer's qp_num is 0 to 16777215");
  }
  if (peer.link_layer != self.link_layer) {
    return fail(Code::kInvalidArgument,
                "link_layer: one side is on InfiniBand, the other on Ethernet");
  }
  if (self.link_layer == LinkLayer::kEthernet && !peer.has_gid()) {
    return fail(Code::kInvalidArgument, "the peer's endpoint has no gid, which RoCE needs");
  }
  return {};
}

ibv_qp_attr to_receive(const detail::QueuePairState::Local& local, const Endpoint& peer,
                       AccessFlags remote_access) {
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = code_of(std::min(local.told.mtu, peer.mtu));
  receive.dest_qp_num = peer.qp_num;
  receive.rq_psn = peer.packet_sequence.number();
  receive.qp_access_flags = std::to_underlying(remote_access);
  receive.ah_attr = address_of(local, peer);
  return receive;
}
constexpr int kConnectedReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_ACCESS_FLAGS;

}  // namespace

PacketSequence PacketSequence::random() {
  return PacketSequence(static_cast<std::uint32_t>(random_from_kernel()) & kMax);
}

Status QueuePairBase::open_port(std::uint8_t port) {
  RKV_ASSIGN_OR_RETURN(const ibv_qp_state now, state());
  if (now == IBV_QPS_INIT) return {};
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = port;
  const int identity = raw()->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  return modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | identity);
}

Result<Endpoint> QueuePairBase::make_endpoint(std::uint8_t port, const GidEntry& gid,
                                              ReadDepths depths) {
  if (gid.index > kMaxGidIndex) {
    return fail(Code::kUnsupported, "the queue pair's address holds GID indexes up to 255");
  }
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, device().attributes());
  RKV_ASSIGN_OR_RETURN(const PortAttributes link, device().port(port));
  const auto mtu = mtu_of_bytes(link.active_mtu_bytes);
  if (!mtu) return fail(Code::kUnsupported, "the port has an active MTU that verbs do not know");
  RKV_RETURN_IF_ERROR(open_port(port));
  Endpoint self{.qp_num = number(),
                .packet_sequence = PacketSequence::random(),
                .link_layer = link.ethernet ? LinkLayer::kEthernet : LinkLayer::kInfiniBand,
                .lid = link.lid,
                .gid = gid.gid,
                .mtu = *mtu};
  if (raw()->qp_type == IBV_QPT_RC) {
    self.depths = read_depths(
        {.reads_as_initiator = depths.initiator, .reads_as_responder = depths.responder}, limits);
  }
  // The highest bit would make it a privileged Q_Key, which a sender may not choose.
  if (raw()->qp_type == IBV_QPT_UD) {
    self.qkey = static_cast<std::uint32_t>(random_from_kernel()) & 0x7FFF'FFFF;
  }
  state_->local = {.port = port, .gid = gid, .told = self};
  return self;
}

Status QueuePairBase::bring_up(const Endpoint& peer, const ConnectionParameters& parameters) {
  RKV_CHECK(state_->local.has_value(), "handshake() before endpoint()");
  if (parameters.retry_count > kMaxRetry) {
    return fail(Code::kInvalidArgument, "retry_count is 0 to 7");
  }
  if (parameters.rnr_retry > kMaxRetry) {
    return fail(Code::kInvalidArgument, "rnr_retry is 0 to 7");
  }
  const auto& local = *state_->local;
  RKV_RETURN_IF_ERROR(check_peer(local.told, peer));
  const ReadDepths own = local.told.depths;
  ReadDepths depths{.initiator = agreed(own.initiator, peer.depths.responder),
                    .responder = agreed(own.responder, peer.depths.initiator)};
  if (parameters.reads_as_responder != 0 && parameters.reads_as_responder < depths.responder) {
    return fail(Code::kInvalidArgument,
                "reads_as_responder is less than endpoint() told the peer: give it there");
  }
  if (parameters.reads_as_initiator != 0) {
    depths.initiator = std::min(depths.initiator, parameters.reads_as_initiator);
  }

  ibv_qp_attr receive = to_receive(local, peer, parameters.remote_access);
  receive.max_dest_rd_atomic = depths.responder;
  receive.min_rnr_timer = parameters.rnr_timer.code();
  RKV_RETURN_IF_ERROR(
      modify(receive, kConnectedReceive | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = parameters.ack_timeout.code();
  send.retry_cnt = std::min(parameters.retry_count, kMaxRetryCount);
  send.rnr_retry = parameters.rnr_retry;
  send.sq_psn = local.told.packet_sequence.number();
  send.max_rd_atomic = depths.initiator;
  return modify(send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

Status QueuePairBase::bring_up(const Endpoint& peer, const UnreliableParameters& parameters) {
  RKV_CHECK(state_->local.has_value(), "handshake() before endpoint()");
  const auto& local = *state_->local;
  RKV_RETURN_IF_ERROR(check_peer(local.told, peer));
  RKV_RETURN_IF_ERROR(modify(to_receive(local, peer, parameters.remote_access), kConnectedReceive));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.sq_psn = local.told.packet_sequence.number();
  return modify(send, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

Status QueuePairBase::bring_up(std::uint32_t qkey) {
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.qkey = qkey;
  RKV_RETURN_IF_ERROR(modify(receive, IBV_QP_STATE | IBV_QP_QKEY));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  return modify(send, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

Status QueuePairBase::must_be_connected() const {
  RKV_ASSIGN_OR_RETURN(const ibv_qp_state now, state());
  if (now == IBV_QPS_RTR || now == IBV_QPS_RTS) return {};
  return fail(Code::kInvalidArgument,
              "into_queue_pair() needs the state RTR or RTS: the queue pair is not connected");
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
