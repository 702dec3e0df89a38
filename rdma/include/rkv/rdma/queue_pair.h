// Queue pairs of every transport: made, connected, and then used in batches with one doorbell each.
//
//   RKV_ASSIGN_OR_RETURN(PreparedQueuePair prepared,
//                        QueuePair::create(pd, cq, cq, {.send_length = 128}));
//   RKV_ASSIGN_OR_RETURN(Endpoint self, prepared.endpoint(port, gid));   // tell the peer
//   RKV_RETURN_IF_ERROR(prepared.post_receives(requests));
//   RKV_ASSIGN_OR_RETURN(QueuePair qp, std::move(prepared).handshake(peer));
//   Batch batch = qp.batch();
//   batch.read(1, OpFlags::kSignaled, local, remote);
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());
//
// Two types for two stages: a PreparedQueuePair cannot post work, since a device would drop it or
// refuse it; what handshake(), activate(), the connection manager (connect.h) or into_queue_pair()
// gives, can. QueuePair is BasicQueuePair<Rc>; of other transports write BasicQueuePair<Uc>.
//
// Buffers, and who counts what is outstanding: batch.h.
//
// Thread safety: one thread at a time; to_error() alone may be called by any thread.
// Source: ibv_create_qp_ex(3), ibv_modify_qp(3), ibv_query_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

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
  std::uint32_t receive_length = 128;          // ignored with a shared receive queue
  std::uint32_t send_sge = 1;                  // pieces of one request: post_read(), post_send()
  std::uint32_t receive_sge = 1;               // of one receive: post_receive()
  std::uint32_t inline_bytes = 0;              // longest inline message, 1024 at most
  const SharedReceiveQueue* shared = nullptr;  // receives come from there
  // Fewer lets a device without atomics be used. Those that the transport has not are left out.
  SendOps operations = kAllSendOps;
};

// Of a reliable connection.
struct ConnectionParameters {
  AccessFlags remote_access = AccessFlags::kNone;  // what the peer may do to our regions
  AckTimeout ack_timeout = kDefaultAckTimeout;
  std::uint8_t retry_count = kMaxRetryCount;  // 0 to 7; 7 is taken for 6: see kMaxRetryCount
  std::uint8_t rnr_retry = kRnrRetryForever;  // 0 to 7
  RnrTimer rnr_timer = kDefaultRnrTimer;
  // Outstanding READs and atomics in each direction; 0 is the device's maximum. Never more than
  // the peer answers: the requester's is cut down to the peer's. A connection manager's peer may
  // grant none; who gave a number as initiator is told kUnsupported then (connect.h).
  std::uint8_t reads_as_initiator = 0;
  std::uint8_t reads_as_responder = 0;
};

// Of an unreliable connection, which has neither acknowledgements nor retries nor READs.
struct UnreliableParameters {
  AccessFlags remote_access = AccessFlags::kNone;  // kRemoteWrite or nothing
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

// What queue pairs of all transports and of both stages have.
class RKV_EXPORT QueuePairBase {
 public:
  QueuePairBase(const QueuePairBase&) = delete;
  QueuePairBase& operator=(const QueuePairBase&) = delete;

  // Receives of this queue pair's own; not with a shared receive queue, and not before the state
  // INIT. On an error those before it have been posted.
  Status post_receives(std::span<const ReceiveRequest> requests);
  // One receive whose message is scattered over several pieces, in their order; at most the
  // options' receive_sge, which the device refuses otherwise. REQUIRES: at most 32.
  Status post_receive(std::uint64_t wr_id, std::span<const RegisteredSpan> pieces);

  // Any set of attributes, for what the functions here do not cover (ibv_modify_qp(3)).
  // kInvalidArgument: the error says whether the transition, its mask or a value is to blame, and
  // explain_modify() which attributes.
  Status modify(ibv_qp_attr attributes, int mask);
  // What modify() would say of these in the state that the queue pair has now: a sentence
  // (transitions.h). A query, no change.
  Result<std::string> explain_modify(const ibv_qp_attr& attributes, int mask) const;
  // Everything outstanding and everything posted later completes as flushed. Any thread.
  Status to_error();
  Result<ibv_qp_state> state() const;
  struct Queried {
    ibv_qp_attr attributes;
    ibv_qp_init_attr created;
  };
  Result<Queried> query(int mask) const;  // ibv_query_qp(3)

  std::uint32_t number() const;
  std::uint32_t inline_bytes() const { return inline_bytes_; }  // what the device granted
  std::uint32_t send_length() const;
  bool has_shared_receive_queue() const;
  const Device& device() const;
  ibv_qp* raw() const;

 protected:
  QueuePairBase() noexcept;
  QueuePairBase(QueuePairBase&&) noexcept;
  QueuePairBase& operator=(QueuePairBase&&) noexcept;
  ~QueuePairBase();

  Status create(ibv_qp_type type, SendOps operations, const ProtectionDomain& pd,
                const CompletionQueue& sends, const CompletionQueue& receives,
                const QueuePairOptions& options);
  const detail::QueuePairState& live() const;  // aborts where it was moved away
  Status open_port(std::uint8_t port);
  Result<Endpoint> make_endpoint(std::uint8_t port, const GidEntry& gid, ReadDepths depths);
  Status bring_up(const Endpoint& peer, const ConnectionParameters& parameters);
  Status bring_up(const Endpoint& peer, const UnreliableParameters& parameters);
  Status bring_up(std::uint32_t qkey);
  Status must_be_connected();
  Status learn_longest_datagram();
  Result<RouteReport> report_route(const Endpoint& peer) const;
  Status change_remote_access(AccessFlags access);
  Status read_pieces(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> to,
                     const RemoteSpan& from);
  Status send_pieces(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> message);
  Status send_pieces_to(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> message,
                        ibv_ah* receiver, std::uint32_t qp_num, std::uint32_t qkey);

  std::unique_ptr<detail::QueuePairState> state_;
  ibv_qp_ex* extended_ = nullptr;
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t max_datagram_bytes_ = 0;  // UD, active
};

template <TransportType T = Rc>
class PreparedQueuePair;

// Connected, or for datagrams active.
template <TransportType T>
class BasicQueuePair : public QueuePairBase {
 public:
  // kUnsupported where the provider has no extended work requests; kInvalidArgument names the field
  // that is outside the device's limits.
  static Result<PreparedQueuePair<T>> create(const ProtectionDomain& pd,
                                             const CompletionQueue& sends,
                                             const CompletionQueue& receives,
                                             const QueuePairOptions& options)
    requires Creatable<T>;
  BasicQueuePair(BasicQueuePair&&) noexcept = default;
  BasicQueuePair& operator=(BasicQueuePair&&) noexcept = default;

  [[nodiscard]] BasicBatch<T> batch() & noexcept RKV_LIFETIMEBOUND {
    if constexpr (std::same_as<T, Ud>) {
      return {extended_, inline_bytes_, max_datagram_bytes_};
    } else {
      return {extended_, inline_bytes_};
    }
  }
  // Longest message: the port's active MTU when the queue pair became active.
  std::uint32_t max_datagram_bytes() const
    requires std::same_as<T, Ud>
  {
    return max_datagram_bytes_;
  }

  // One request with several local pieces, at most the options' send_sge; a doorbell of its own,
  // not with a batch open. Through the older ibv_post_send(3): rdma-core's SoftRoCE provider takes
  // the length of the first piece for all of them when a list comes by ibv_wr_set_sge_list.
  Status post_read(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> to,
                   const RemoteSpan& from)
    requires(HasRead<T> && Connected<T>)
  {
    return read_pieces(wr_id, flags, to, from);
  }
  Status post_send(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> message)
    requires Connected<T>
  {
    return send_pieces(wr_id, flags, message);
  }
  // A datagram of several pieces, at most max_datagram_bytes() in all; kTooLarge.
  Status post_send(std::uint64_t wr_id, OpFlags flags, std::span<const RegisteredSpan> message,
                   const AddressHandle& receiver, std::uint32_t qp_num, std::uint32_t qkey)
    requires std::same_as<T, Ud>
  {
    return send_pieces_to(wr_id, flags, message, receiver.raw(), qp_num, qkey);
  }

  // What the peer may do from now on. In state RTS this is a gate: 0 refuses READs and atomics
  // (which kill the connection), messages still pass.
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

// Made, but not yet usable: it can take receives, tell its endpoint, and become a BasicQueuePair.
// Where that fails it is still here, and can be queried, explained or tried again.
template <TransportType T>
class PreparedQueuePair : public QueuePairBase {
 public:
  PreparedQueuePair(PreparedQueuePair&&) noexcept = default;
  PreparedQueuePair& operator=(PreparedQueuePair&&) noexcept = default;

  // From RESET to INIT on this port, where receives can be posted; endpoint() does it too. In INIT
  // it does nothing.
  Status open(std::uint8_t port) { return open_port(port); }
  // What to tell the peer; on RoCE `gid` comes from Device::routable_gid(). `depths`: what this
  // side will ask and answer at most; 0 is the device's maximum. One of UD proposes a random
  // Q_Key for activate(). kNoDevice: the port is not ACTIVE; kInvalidArgument: there is no such
  // port, or its table does not have `gid` at its index.
  Result<Endpoint> endpoint(std::uint8_t port, const GidEntry& gid, ReadDepths depths = {}) {
    return make_endpoint(port, gid, depths);
  }

  // Connects; the peer does the same with our endpoint, before or after. The MTU is the smaller of
  // both, the link layer decides whether LID or GID is used, and READs are never deeper than both
  // allow. REQUIRES: endpoint() was called. kInvalidArgument names the field; kUnreachable: there
  // is no route. Tells nothing about the peer: nothing is sent.
  Result<BasicQueuePair<T>> handshake(const Endpoint& peer,
                                      const HandshakeParameters<T>& parameters = {}) &&
    requires Connected<T>
  {
    RKV_RETURN_IF_ERROR(bring_up(peer, parameters));
    return BasicQueuePair<T>(std::move(*this));
  }
  // Which route a handshake takes, or took in vain, and why. REQUIRES: endpoint() was called.
  Result<RouteReport> explain_route(const Endpoint& peer) const { return report_route(peer); }
  // From here on datagrams that carry `qkey` are received, and others dropped.
  // REQUIRES: endpoint() or open() was called.
  Result<BasicQueuePair<T>> activate(std::uint32_t qkey) &&
    requires std::same_as<T, Ud>
  {
    RKV_RETURN_IF_ERROR(bring_up(qkey));
    return BasicQueuePair<T>(std::move(*this));
  }
  // For one brought up otherwise: by modify(), or by the connection manager's CmId. Asks the
  // device: kInvalidArgument unless its state is RTR or RTS.
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

// The READ depths that `parameters` ask of a device: 0 becomes the device's maximum, more than
// that is cut down. 254 at most, since 255 means "whatever" to librdmacm.
RKV_EXPORT ReadDepths read_depths(const ConnectionParameters& parameters,
                                  const DeviceAttributes& device);

}  // namespace rkv::rdma
