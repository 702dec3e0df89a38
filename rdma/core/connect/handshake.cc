// Bring-up from RESET to RTS without a connection manager: endpoint(), handshake() and activate().
#include <algorithm>
#include <cerrno>

#include "common/random.h"
#include "rdma/core/queue/queue_pair_state.h"

namespace rkv::rdma {
namespace {

constexpr std::uint8_t kMaxRetry = 7;  // 3 bits
constexpr std::uint32_t kMaxGidIndex = 255;
constexpr std::uint8_t kMaxServiceLevel = 15;
constexpr std::uint32_t kMaxFlowLabel = 0xF'FFFF;

Status check_ranges(const PathParameters& path) {
  if (path.service_level.value_or(0) > kMaxServiceLevel) {
    return fail(Code::kInvalidArgument, "path.service_level is 0 to 15");
  }
  if (path.flow_label.value_or(0) > kMaxFlowLabel) {
    return fail(Code::kInvalidArgument, "path.flow_label is 0 to 1048575");
  }
  return {};
}

template <class Parameters>
Result<ibv_qp_attr> to_receive(const Route& route, const Endpoint& peer,
                               const Parameters& parameters) {
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = detail::to_verbs(route.mtu);
  receive.dest_qp_num = peer.qp_num;
  receive.rq_psn = peer.packet_sequence.number();
  receive.qp_access_flags = std::to_underlying(parameters.remote_access);
  RKV_ASSIGN_OR_RETURN(receive.ah_attr, route.address.to_verbs());
  RKV_RETURN_IF_ERROR(
      detail::set_path(parameters.path, peer.link_layer == LinkLayer::kEthernet, receive.ah_attr));
  return receive;
}
constexpr int kConnectedReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_ACCESS_FLAGS;

// Moves to RTR; here the kernel resolves a route to the peer. If there is none, its errno varies
// and says nothing about addresses.
Status find_way(QueuePairBase& qp, const ibv_qp_attr& receive, int mask) {
  const Status done = qp.modify(receive, mask);
  if (done || receive.ah_attr.is_global == 0) return done;
  Error error = done.error();
  switch (error.sys_errno) {
    case EINVAL:
      // In a state other than INIT the transition itself is invalid, whatever the peer.
      if (const auto now = qp.state(); !now || *now != IBV_QPS_INIT) break;
      [[fallthrough]];
    case ENODEV:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ETIMEDOUT:
    case ENOENT:
    case EADDRNOTAVAIL:
      error.code = Code::kUnreachable;
      error.text = "no route to the peer's GID: explain_route() says what to check";
      break;
    default:
      break;
  }
  return std::unexpected(error);
}

// Checked here because a GID index that holds another address, or none, fails only later, at the
// peer, with an error that does not mention GIDs.
Status is_in_table(const Device& device, const GidEntry& gid) {
  if (gid.gid == decltype(gid.gid){}) return {};  // InfiniBand within a subnet
  const Result<GidEntry> there = device.gid(gid.port, gid.index);
  if (!there && there.error().code != Code::kNotFound) return std::unexpected(there.error());
  if (there && there->gid == gid.gid) return {};
  return fail_call(Code::kInvalidArgument, "ibv_query_gid_table", 0,
                   "gid.index: the port's GID table has another GID at this index, or none");
}

}  // namespace

Status detail::check(const ConnectionParameters& parameters) {
  if (parameters.retry_count > kMaxRetry) {
    return fail(Code::kInvalidArgument, "retry_count is 0 to 7");
  }
  if (parameters.rnr_retry > kMaxRetry) {
    return fail(Code::kInvalidArgument, "rnr_retry is 0 to 7");
  }
  return check_ranges(parameters.path);
}

Status detail::check_path(const PathParameters& path, bool roce, bool global) {
  RKV_RETURN_IF_ERROR(check_ranges(path));
  if (roce && path.hop_limit) {
    return fail_call(Code::kUnsupported, "ibv_modify_qp", 0,
                     "path.hop_limit: on RoCE the kernel takes that of the IP route (ip-route(8), "
                     "hoplimit)");
  }
  if (!global && (path.traffic_class || path.hop_limit || path.flow_label)) {
    return fail(Code::kInvalidArgument,
                "path.traffic_class, hop_limit and flow_label need a route by GID; this one is by "
                "LID");
  }
  return {};
}

Status detail::set_path(const PathParameters& path, bool roce, ibv_ah_attr& address) {
  RKV_RETURN_IF_ERROR(check_path(path, roce, address.is_global != 0));
  address.sl = path.service_level.value_or(address.sl);
  address.grh.traffic_class = path.traffic_class.value_or(address.grh.traffic_class);
  address.grh.hop_limit = path.hop_limit.value_or(address.grh.hop_limit);
  address.grh.flow_label = path.flow_label.value_or(address.grh.flow_label);
  return {};
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
  if (limits.iwarp) {
    return fail(Code::kUnsupported,
                "an iWARP device has no endpoints: connect by address (Connector, CmListener)");
  }
  if (port == 0 || port > limits.port_count) {
    return fail(Code::kInvalidArgument, "port is 1 to the device's port_count");
  }
  if (gid.port != port) {
    return fail(Code::kInvalidArgument, "gid belongs to another port's GID table");
  }
  RKV_ASSIGN_OR_RETURN(const PortAttributes link, device().port(port));
  if (!link.active()) {
    return fail_call(
        Code::kNoDevice, "ibv_query_port", 0,
        "the port is not ACTIVE: check `rdma link`, and that its network interface is up");
  }
  RKV_RETURN_IF_ERROR(is_in_table(device(), gid));
  const auto mtu = mtu_of_bytes(link.active_mtu_bytes);
  if (!mtu) return fail(Code::kUnsupported, "the port's active MTU is not one that verbs define");
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
  // The highest bit would make it a privileged Q_Key, which a sender may not set.
  if (raw()->qp_type == IBV_QPT_UD) {
    self.qkey = static_cast<std::uint32_t>(random_from_kernel()) & 0x7FFF'FFFF;
  }
  state_->local = {.port = port, .gid = gid, .announced = self};
  return self;
}

Status QueuePairBase::bring_up(const Endpoint& peer, const ConnectionParameters& parameters) {
  RKV_CHECK(state_->local.has_value(), "endpoint() must be called before handshake()");
  RKV_RETURN_IF_ERROR(detail::check(parameters));
  const auto& local = *state_->local;
  RKV_ASSIGN_OR_RETURN(const Route route, local.route_to(peer));
  ReadDepths depths = route.depths;
  if (parameters.reads_as_responder != 0 && parameters.reads_as_responder < depths.responder) {
    return fail(
        Code::kInvalidArgument,
        "reads_as_responder is less than endpoint() promised to the peer: pass it to endpoint()");
  }
  if (parameters.reads_as_initiator != 0) {
    depths.initiator = std::min(depths.initiator, parameters.reads_as_initiator);
  }

  RKV_ASSIGN_OR_RETURN(ibv_qp_attr receive, to_receive(route, peer, parameters));
  receive.max_dest_rd_atomic = depths.responder;
  receive.min_rnr_timer = parameters.rnr_timer.code();
  RKV_RETURN_IF_ERROR(find_way(
      *this, receive, kConnectedReceive | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = parameters.ack_timeout.code();
  send.retry_cnt = std::min(parameters.retry_count, kMaxRetryCount);
  send.rnr_retry = parameters.rnr_retry;
  send.sq_psn = local.announced.packet_sequence.number();
  send.max_rd_atomic = depths.initiator;
  return modify(send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

Status QueuePairBase::bring_up(const Endpoint& peer, const UnreliableParameters& parameters) {
  RKV_CHECK(state_->local.has_value(), "endpoint() must be called before handshake()");
  if (!has(AccessFlags::kRemoteWrite, parameters.remote_access)) {
    return fail(Code::kInvalidArgument, "remote_access of UC is kRemoteWrite or kNone");
  }
  const auto& local = *state_->local;
  RKV_ASSIGN_OR_RETURN(const Route route, local.route_to(peer));
  RKV_ASSIGN_OR_RETURN(const ibv_qp_attr receive, to_receive(route, peer, parameters));
  RKV_RETURN_IF_ERROR(find_way(*this, receive, kConnectedReceive));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.sq_psn = local.announced.packet_sequence.number();
  return modify(send, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

Result<RouteReport> QueuePairBase::report_route(const Endpoint& peer) const {
  RKV_CHECK(state_->local.has_value(), "endpoint() must be called before explain_route()");
  const auto& local = *state_->local;
  RKV_ASSIGN_OR_RETURN(const PortAttributes port, device().port(local.port));
  RKV_ASSIGN_OR_RETURN(const std::vector<GidEntry> gids, device().gid_table());
  return explain_route(port, local.gid, gids, local.announced, peer);
}

Status QueuePairBase::bring_up(std::uint32_t qkey) {
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.qkey = qkey;
  RKV_RETURN_IF_ERROR(modify(receive, IBV_QP_STATE | IBV_QP_QKEY));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  RKV_RETURN_IF_ERROR(modify(send, IBV_QP_STATE | IBV_QP_SQ_PSN));
  return learn_longest_datagram();
}

// A device drops longer datagrams and reports success, so the limit is read here.
Status QueuePairBase::learn_longest_datagram() {
  RKV_ASSIGN_OR_RETURN(const Queried found, query(IBV_QP_PORT));
  RKV_ASSIGN_OR_RETURN(const PortAttributes port, device().port(found.attributes.port_num));
  limits_.datagram_bytes = port.active_mtu_bytes;
  return {};
}

Status QueuePairBase::must_be_connected() {
  // The kernel moves an iWARP queue pair, and soft-iWARP does not report its state. Requests on one
  // that is not connected are refused.
  if (live().iwarp) return {};
  RKV_ASSIGN_OR_RETURN(const ibv_qp_state now, state());
  if (now != IBV_QPS_RTR && now != IBV_QPS_RTS) {
    return fail(Code::kInvalidArgument,
                "into_queue_pair() needs the state RTR or RTS: the queue pair is not connected");
  }
  return raw()->qp_type == IBV_QPT_UD ? learn_longest_datagram() : Status{};
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
