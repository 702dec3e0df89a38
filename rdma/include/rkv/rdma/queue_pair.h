// Queue pairs of every transport: created, connected, and then used in batches of one doorbell
// each.
//
//   RKV_ASSIGN_OR_RETURN(PreparedQueuePair prepared,
//                        QueuePair::create(pd, cq, cq, {.send_length = 128}));
//   RKV_ASSIGN_OR_RETURN(Endpoint self, prepared.endpoint(port, gid));   // send it to the peer
//   RKV_RETURN_IF_ERROR(prepared.post_receives(requests));
//   RKV_ASSIGN_OR_RETURN(QueuePair qp, std::move(prepared).handshake(peer));
//   Batch batch = qp.batch();
//   batch.read(1, OpFlags::kSignaled, local, remote);
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());
//
// There are two types for two stages. A PreparedQueuePair cannot post sends, which a device would
// drop or refuse in these states. handshake(), activate(), the connection manager (connect.h) and
// into_queue_pair() return a queue pair that can. QueuePair is BasicQueuePair<Rc>; for other
// transports write BasicQueuePair<Uc> or BasicQueuePair<Ud>.
//
// Buffers and the counting of outstanding requests: batch.h.
//
// Thread safety: one thread at a time. Only to_error() may also be called by any other thread.
// Source: ibv_create_qp_ex(3), ibv_modify_qp(3), ibv_query_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "rkv/export.h"
#include "rkv/lifetime.h"
#include "rkv/rdma/batch.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/endpoint.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/flags.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/route.h"
#include "rkv/rdma/srq.h"
#include "rkv/rdma/timers.h"
#include "rkv/rdma/transport_types.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct QueuePairOptions {
  std::uint32_t send_length = 128;
  std::uint32_t receive_length = 128;  // ignored with a shared receive queue
  // The most local spans of one request and of one receive: at most 32 and the device's max_sge. On
  // SoftRoCE, more than one send span takes the older way to post, ibv_post_send(3): the lists of
  // its newer one are wrong.
  std::uint32_t send_sge = 1;
  std::uint32_t receive_sge = 1;
  std::uint32_t inline_bytes = 0;              // longest inline message, at most 1024
  const SharedReceiveQueue* shared = nullptr;  // the source of receives
  // With fewer operations a device without atomics can be used. Operations that the transport lacks
  // are ignored. A provider without extended work requests has no windows; there a batch with an
  // operation that the device lacks fails with kUnsupported.
  SendOps operations = kAllSendOps;
};

// How switches and routers treat the packets of this side; the peer chooses for its own packets. A
// field without a value keeps the value of the route. The route of handshake() has a hop limit of
// 64, and 0 in the other fields. The connection manager resolves the route of a connection by
// address, with the type of service of its id (connect.h). query(IBV_QP_AV) and describe() show the
// values.
//
// SoftRoCE has no service level and sends no flow label. kUnsupported: a hop limit on RoCE, where
// the kernel always uses that of the IP route (ip-route(8), "hoplimit").
struct PathParameters {
  std::optional<std::uint8_t> service_level = std::nullopt;  // 0 to 15
  // These need a GID in the route, which RoCE always has. With RoCE v2 they are in the IP header;
  // the upper six bits of the traffic class are the DSCP.
  std::optional<std::uint8_t> traffic_class = std::nullopt;
  std::optional<std::uint8_t> hop_limit = std::nullopt;
  std::optional<std::uint32_t> flow_label = std::nullopt;  // 20 bits
  friend bool operator==(const PathParameters&, const PathParameters&) = default;
};

// Parameters of a reliable connection.
struct ConnectionParameters {
  AccessFlags remote_access = AccessFlags::kNone;  // the peer's access rights to local regions
  AckTimeout ack_timeout = kDefaultAckTimeout;
  std::uint8_t retry_count = kMaxRetryCount;  // 0 to 7; 7 is treated as 6: see kMaxRetryCount
  std::uint8_t rnr_retry = kRnrRetryForever;  // 0 to 7
  RnrTimer rnr_timer = kDefaultRnrTimer;
  // Outstanding READs and atomics in each direction; 0 means the device's maximum. The initiator's
  // number is reduced to the peer's number as responder. A connection manager's peer may grant
  // none. If a nonzero number was given as initiator, connecting then fails with kUnsupported
  // (connect.h).
  std::uint8_t reads_as_initiator = 0;
  std::uint8_t reads_as_responder = 0;
  PathParameters path{};
};

// Parameters of an unreliable connection, which has no acknowledgements, retries or READs.
struct UnreliableParameters {
  AccessFlags remote_access = AccessFlags::kNone;  // kRemoteWrite or none
  PathParameters path{};
};

namespace detail {

struct QueuePairState;
struct NoParameters {};
template <class T>
struct ParametersOf {
  using Type = NoParameters;
};
template <>
struct ParametersOf<Rc> {
  using Type = ConnectionParameters;
};
template <>
struct ParametersOf<Uc> {
  using Type = UnreliableParameters;
};

}  // namespace detail

template <TransportType T>
using HandshakeParameters = typename detail::ParametersOf<T>::Type;

// The common part of queue pairs of all transports and both stages.
class RKV_EXPORT QueuePairBase {
 public:
  QueuePairBase(const QueuePairBase&) = delete;
  QueuePairBase& operator=(const QueuePairBase&) = delete;

  // Posts receives to this queue pair's own receive queue; not with a shared receive queue, and not
  // before the state INIT. On an error the receives before the failing one have been posted.
  Status post_receives(std::span<const ReceiveRequest> requests);
  // The same for one receive.
  Status post_receive(std::uint64_t wr_id, const Scatter& buffer);

  // Changes any set of attributes, for cases that the functions here do not cover
  // (ibv_modify_qp(3)). kInvalidArgument: the error text names what is wrong: the transition, its
  // mask or a value. explain_modify() names the attributes.
  Status modify(ibv_qp_attr attributes, int mask);
  // Explains in a sentence what modify() would return for these attributes in the current state
  // (transitions.h). A query; it changes nothing.
  Result<std::string> explain_modify(const ibv_qp_attr& attributes, int mask) const;
  // Moves to the error state. Requests that have not ended complete as flushed, also unsignaled
  // ones. Receives in a shared receive queue stay there. Requests that are posted later complete as
  // flushed too, with two exceptions. SoftRoCE may keep later receives until to_error() is called
  // again. iWARP never completes what is posted later. Any thread.
  Status to_error();
  Result<ibv_qp_state> state() const;  // ibv_query_qp(3), a system call
  struct Queried {
    ibv_qp_attr attributes;
    ibv_qp_init_attr created;
  };
  Result<Queried> query(int mask) const;  // ibv_query_qp(3), a system call

  std::uint32_t number() const;
  // As granted by the device.
  std::uint32_t inline_bytes() const { return limits_.inline_bytes; }
  // The most local spans of one READ.
  std::uint32_t read_pieces() const { return limits_.read_pieces; }
  // Whether a provider has refused a batch in its middle: the queue pair is in the error state, and
  // the requests before complete. Only where batches are posted with ibv_post_send(3).
  bool refused_in_the_middle() const;
  std::uint32_t send_length() const;
  bool has_shared_receive_queue() const;
  const Device& device() const;
  ProtectionDomain domain() const;
  ibv_qp* raw() const;
  // Keeps the queue pair, and so its number, beyond this object. Any thread may end it.
  std::shared_ptr<ibv_qp> share() const;

 protected:
  QueuePairBase() noexcept;
  QueuePairBase(QueuePairBase&&) noexcept;
  QueuePairBase& operator=(QueuePairBase&&) noexcept;
  ~QueuePairBase();

  Status create(ibv_qp_type type, SendOps operations, const ProtectionDomain& pd,
                const CompletionQueue& sends, const CompletionQueue& receives,
                const QueuePairOptions& options);
  const detail::QueuePairState& live() const;  // aborts if the queue pair was moved from
  Status open_port(std::uint8_t port);
  Result<Endpoint> make_endpoint(std::uint8_t port, const GidEntry& gid, ReadDepths depths);
  Status bring_up(const Endpoint& peer, const ConnectionParameters& parameters);
  Status bring_up(const Endpoint& peer, const UnreliableParameters& parameters);
  Status bring_up(std::uint32_t qkey);
  Status must_be_connected();
  Status learn_longest_datagram();
  Result<RouteReport> report_route(const Endpoint& peer) const;
  Status change_remote_access(AccessFlags access);

  std::shared_ptr<detail::QueuePairState> state_;
  ibv_qp_ex* extended_ = &detail::moved_away;  // never null
  detail::RequestLimits limits_;
};

template <TransportType T = Rc>
class PreparedQueuePair;

// A queue pair that is connected or, for datagrams, active.
template <TransportType T>
class BasicQueuePair : public QueuePairBase {
 public:
  // Uses ibv_create_qp(3) and ibv_post_send(3) if the provider has no extended work requests.
  // kUnsupported: the device lacks the transport or an operation. kInvalidArgument names the field
  // that exceeds the device's limits.
  static Result<PreparedQueuePair<T>> create(const ProtectionDomain& pd,
                                             const CompletionQueue& sends,
                                             const CompletionQueue& receives,
                                             const QueuePairOptions& options)
    requires Creatable<T>;
  BasicQueuePair(BasicQueuePair&&) noexcept = default;
  BasicQueuePair& operator=(BasicQueuePair&&) noexcept = default;

  [[nodiscard]] BasicBatch<T> batch() & noexcept RKV_LIFETIMEBOUND { return {extended_, limits_}; }
  // One request, posted at once with its own doorbell: qp.op(1).signaled().send(message) (Op in
  // batch.h). No batch may be open.
  Op<T, detail::IntoQueuePair<T>> op(std::uint64_t wr_id) & noexcept RKV_LIFETIMEBOUND {
    return {detail::IntoQueuePair<T>{this}, wr_id, OpFlags::kNone, {}, {}};
  }
  // The longest message: the port's active MTU when the queue pair became active.
  std::uint32_t max_datagram_bytes() const
    requires std::same_as<T, Ud>
  {
    return limits_.datagram_bytes;
  }

  // Sets the peer's access rights from now on. In state RTS it acts as a gate: kNone refuses READs
  // and atomics (which ends the connection), while messages still pass.
  Status set_remote_access(AccessFlags access)
    requires Connected<T>
  {
    return change_remote_access(access);
  }

 private:
  friend class PreparedQueuePair<T>;
  explicit BasicQueuePair(QueuePairBase&& ready) noexcept : QueuePairBase(std::move(ready)) {}
};

using QueuePair = BasicQueuePair<Rc>;

template <TransportType T>
struct detail::IntoQueuePair {
  using Answer = Status;
  template <class Add>
  Status operator()(Add add) const noexcept {
    BasicBatch<T> batch = queue_pair->batch();
    add(batch);
    return std::move(batch).submit();
  }
  BasicQueuePair<T>* queue_pair;
};

// A queue pair that is not usable yet: it can post receives, return its endpoint, and become a
// BasicQueuePair. If that fails the object remains: it can be queried, explained, and connected
// again.
template <TransportType T>
class PreparedQueuePair : public QueuePairBase {
 public:
  PreparedQueuePair(PreparedQueuePair&&) noexcept = default;
  PreparedQueuePair& operator=(PreparedQueuePair&&) noexcept = default;

  // Moves from RESET to INIT on this port, where receives can be posted; endpoint() does it too. In
  // INIT it has no effect.
  Status open(std::uint8_t port) { return open_port(port); }
  // Returns the endpoint to send to the peer; on RoCE `gid` comes from Device::routable_gid().
  // `depths`: the limits of this side as initiator and as responder; 0 means the device's maximum.
  // For UD the endpoint has a random Q_Key for activate(). kNoDevice: the port is not ACTIVE.
  // kUnsupported: an iWARP device, which is connected by address only (connect.h).
  // kInvalidArgument: the port does not exist, or its table does not have `gid` at its index.
  Result<Endpoint> endpoint(std::uint8_t port, const GidEntry& gid, ReadDepths depths = {}) {
    return make_endpoint(port, gid, depths);
  }

  // Connects to the peer, which calls this with the endpoint of this side, before or after. The MTU
  // is the smaller of both, and the READ depths never exceed the limits of either side. The link
  // layer decides whether LID or GID is used. Makes system calls and sends nothing, so success does
  // not show that the peer is reachable. kInvalidArgument names the field; kUnreachable: there is
  // no route. REQUIRES: endpoint() was called.
  Result<BasicQueuePair<T>> handshake(const Endpoint& peer,
                                      const HandshakeParameters<T>& parameters = {}) &&
    requires Connected<T>
  {
    RKV_RETURN_IF_ERROR(bring_up(peer, parameters));
    return BasicQueuePair<T>(std::move(*this));
  }
  // Explains the route of a handshake, whether it succeeded or failed. REQUIRES: endpoint() was
  // called.
  Result<RouteReport> explain_route(const Endpoint& peer) const { return report_route(peer); }
  // Starts reception of datagrams that carry `qkey`; others are dropped. REQUIRES: endpoint() or
  // open() was called.
  Result<BasicQueuePair<T>> activate(std::uint32_t qkey) &&
    requires std::same_as<T, Ud>
  {
    RKV_RETURN_IF_ERROR(bring_up(qkey));
    return BasicQueuePair<T>(std::move(*this));
  }
  // For a queue pair brought up by other means: modify(), or the connection manager's CmId. Queries
  // the device: kInvalidArgument unless its state is RTR or RTS. On iWARP the state is not checked;
  // requests on a queue pair that is not connected are refused.
  Result<BasicQueuePair<T>> into_queue_pair() && {
    RKV_RETURN_IF_ERROR(must_be_connected());
    return BasicQueuePair<T>(std::move(*this));
  }

 private:
  friend class BasicQueuePair<T>;
  PreparedQueuePair() noexcept = default;
};

template <TransportType T>
Result<PreparedQueuePair<T>> BasicQueuePair<T>::create(const ProtectionDomain& pd,
                                                       const CompletionQueue& sends,
                                                       const CompletionQueue& receives,
                                                       const QueuePairOptions& options)
  requires Creatable<T>
{
  PreparedQueuePair<T> out;
  RKV_RETURN_IF_ERROR(out.QueuePairBase::create(T::kType, operations_of<T>(options.operations), pd,
                                                sends, receives, options));
  return out;
}

// The READ depths that `parameters` request from a device: 0 becomes the device's maximum, larger
// values are reduced to it. At most 254, since 255 means "any" to librdmacm.
RKV_EXPORT ReadDepths read_depths(const ConnectionParameters& parameters,
                                  const DeviceAttributes& device);

}  // namespace rkv::rdma
