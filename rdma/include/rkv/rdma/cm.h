// The objects of librdmacm: event channel, event, id. They are meant for programs with their own
// event loop. Most programs use connect.h or datagram_service.h, which are built on them.
//
//   RKV_ASSIGN_OR_RETURN(EventChannel channel, EventChannel::create());
//   RKV_ASSIGN_OR_RETURN(CmId id, CmId::create(channel));
//   RKV_RETURN_IF_ERROR(id.resolve_address(peer, nullptr, 1000));
//   RKV_ASSIGN_OR_RETURN(CmEvent event, channel.wait(deadline));   // ADDR_RESOLVED
//
// The program creates queue pairs (queue_pair.h); librdmacm never does. So the program chooses the
// peer's access rights, while librdmacm would grant remote WRITE. A queue pair is a
// PreparedQueuePair until to_ready() has succeeded.
//
// A CmId establishes connections; a DatagramId (datagram_service.h) looks up datagram services. A
// call that applies only to the other kind does not compile. Both may share one channel.
//
// Thread safety: an EventChannel is read by one thread; calls on a CmId come from one thread at a
// time, which need not be the reader. Source: rdma_cm(7).
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "rkv/bytes.h"
#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/address.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/result.h"

namespace rkv::rdma {

// Private data sizes that InfiniBand and RoCE carry in each message. The receiver always gets the
// full size, padded with zeros: include a length in the data.
inline constexpr std::size_t kConnectRequestBytes = 56;
inline constexpr std::size_t kConnectReplyBytes = 196;
inline constexpr std::size_t kRejectBytes = 148;
// Sizes for the lookup of a datagram service: the request, and an answer of either kind.
inline constexpr std::size_t kLookupRequestBytes = 180;
inline constexpr std::size_t kLookupReplyBytes = 136;

// The port space. Ids of different spaces may have the same port number. kIb is for peers that use
// RDMA_PS_IB: with IP addresses it behaves like kTcp, but its ports are separate.
enum class ConnectionPorts : std::uint16_t { kTcp = RDMA_PS_TCP, kIb = RDMA_PS_IB };
// kIpoib reaches queue pairs of IP over InfiniBand; on RoCE the call fails with kUnsupported.
enum class DatagramPorts : std::uint16_t { kUdp = RDMA_PS_UDP, kIpoib = RDMA_PS_IPOIB };

// A copy of the private data of an event. InfiniBand and RoCE pad it with zeros; iWARP does not, so
// it is padded to `least` bytes here.
class RKV_EXPORT PrivateData {
 public:
  PrivateData() = default;
  explicit PrivateData(Bytes bytes, std::size_t least = 0);
  Bytes bytes() const { return Bytes(data_).first(length_); }

 private:
  std::array<std::byte, 255> data_{};
  std::uint8_t length_ = 0;
};

namespace detail {
struct CmIdState;
struct EventChannelState;
}  // namespace detail

class CmEvent;
class CmId;
class CmIdBase;
class DatagramId;
struct DatagramService;

class RKV_EXPORT EventChannel {
 public:
  // rdma_create_event_channel(3); non-blocking, closed on exec. kNoDevice if the kernel has no
  // connection manager.
  static Result<EventChannel> create();
  EventChannel(EventChannel&&) = default;
  EventChannel& operator=(EventChannel&&) = default;
  // Returns another handle to the same channel.
  EventChannel share() const { return EventChannel(state_); }

  int fd() const;  // readable when there is an event
  // Returns the next event, or nothing. Does not block.
  Result<std::optional<CmEvent>> next();
  // Blocks until there is an event; kTimeout if the deadline passed.
  Result<CmEvent> wait(const Deadline& deadline);
  rdma_event_channel* raw() const;

 private:
  friend class CmIdBase;
  explicit EventChannel(std::shared_ptr<detail::EventChannelState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<detail::EventChannelState> state_;
};

// An event; the destructor acknowledges it. It keeps its id alive, since librdmacm cannot destroy
// an id that has an unacknowledged event. A connect request that was not taken is rejected.
class RKV_EXPORT CmEvent {
 public:
  CmEvent(CmEvent&& other) noexcept;
  CmEvent& operator=(CmEvent&&) = delete;
  ~CmEvent();

  rdma_cm_event_type type() const { return raw_->event; }
  int status() const { return raw_->status; }  // errno, negative, or a reject reason
  const char* name() const;                    // "RDMA_CM_EVENT_ESTABLISHED"
  // The owner set by CmId::set_owner() on the event's id; for a connect request, the owner of the
  // listening id. nullptr if none was set or it was destroyed.
  std::shared_ptr<void> owner() const;
  // Valid while the event exists. Empty for events without private data.
  Bytes private_data() const;
  // The READ depths in the peer's connect request or response, from this side's view.
  ReadDepths peer_depths() const;
  // Whether the event is about a DatagramId.
  bool is_datagram() const { return raw_->id->qp_type == IBV_QPT_UD; }
  // CONNECT_REQUEST: takes the new id; call once. REQUIRES: !is_datagram() for take_request(),
  // is_datagram() for take_datagram_request().
  CmId take_request();
  DatagramId take_datagram_request();
  // ESTABLISHED of a DatagramId: the service that was looked up. REQUIRES: is_datagram().
  DatagramService datagram_service() const;
  // The error for a caller that waited for success and received this event.
  Error error() const;
  rdma_cm_event* raw() const { return raw_; }

 private:
  friend class EventChannel;
  CmEvent(rdma_cm_event* raw, std::shared_ptr<detail::EventChannelState> channel);
  rdma_cm_event* raw_;
  std::shared_ptr<detail::EventChannelState> channel_;
  std::shared_ptr<detail::CmIdState> id_;  // the event's id, or the new id of a request
};

// The common part of connection ids and datagram ids.
class RKV_EXPORT CmIdBase {
 public:
  CmIdBase(CmIdBase&&) = default;
  CmIdBase& operator=(CmIdBase&&) = default;

  // Sets the value that CmEvent::owner() returns for events of this id. The id does not keep it
  // alive.
  void set_owner(std::weak_ptr<void> owner);

  // Binds to a local address; port 0 means any. kNoDevice if no device has the address.
  Status bind(const SocketAddress& local);
  // Listens for requests, which arrive as CONNECT_REQUEST events. `backlog`: how many may wait, as
  // in listen(2). kConflict: the port is taken.
  Status listen(int backlog);
  // Starts address resolution and does not block. ADDR_RESOLVED or ADDR_ERROR follows, the latter
  // also after `timeout_ms`. After ADDR_RESOLVED device() is known. `source` may be nullptr.
  Status resolve_address(const SocketAddress& peer, const SocketAddress* source, int timeout_ms);
  // Sets the IP header byte that has DSCP in its upper six bits, for the connection's packets. Call
  // before resolve_route(). The connections of a listening id inherit it.
  Status set_type_of_service(std::uint8_t value);
  // Call both before bind(). The first allows an address that another id is bound to, as long as
  // neither listens. The second sets whether `::` means IPv6 only or IPv4 too; the default is the
  // system's.
  Status set_reuse_address(bool allowed);
  Status set_ipv6_only(bool only);
  // Starts route resolution and does not block. ROUTE_RESOLVED or ROUTE_ERROR follows, the latter
  // also after `timeout_ms`.
  Status resolve_route(int timeout_ms);
  // Sends events to `channel` from now on. Blocks until every event of this id on the old channel
  // is acknowledged: destroy CmEvents of this id first.
  Status migrate(const EventChannel& channel);

  bool has_device() const { return raw()->verbs != nullptr; }
  // Whether the device is iWARP, whose connections need fewer steps (CmId).
  bool is_iwarp() const;
  // The context that librdmacm uses. Protection domains and queues for this id are created on it.
  // It stays open as long as the handle and the objects created on it, even after the id is
  // destroyed or the device unplugged. REQUIRES: has_device().
  Device device() const;
  std::uint8_t port_number() const { return raw()->port_num; }
  SocketAddress local_address() const;
  SocketAddress peer_address() const;
  rdma_cm_id* raw() const;

 protected:
  explicit CmIdBase(std::shared_ptr<detail::CmIdState> state) : state_(std::move(state)) {}
  static Result<std::shared_ptr<detail::CmIdState>> make(const EventChannel& channel,
                                                         rdma_port_space space);
  std::shared_ptr<detail::CmIdState> state_;
};

class RKV_EXPORT CmId : public CmIdBase {
 public:
  static Result<CmId> create(const EventChannel& channel,
                             ConnectionPorts ports = ConnectionPorts::kTcp);

  // Sets the ACK timeout that the peer's connection manager proposes to the peer's queue pair. This
  // side's queue pair uses the timeout passed to to_ready(). Call before resolve_route().
  // kUnsupported on old kernels.
  Status set_ack_timeout(AckTimeout timeout);

  // Move the queue pair through its states, with the path data of the connection manager and the
  // access flags, timers and depths of the caller. The caller's path parameters replace those of
  // the connection manager. to_init() refuses those that the route lacks: kUnsupported for all on
  // iWARP and for a hop limit on RoCE; kInvalidArgument for those that need a GID on a route by
  // LID. Call to_init() before connect() or accept(), and to_ready() after CONNECT_RESPONSE or
  // before accept(). Then call the prepared queue pair's into_queue_pair(). to_init(), to_ready(),
  // connect() and accept() return kInvalidArgument for a queue pair of another device.
  Status to_init(QueuePairBase& qp, const ConnectionParameters& parameters);
  Status to_ready(QueuePairBase& qp, const ConnectionParameters& parameters, ReadDepths depths);
  // CONNECT_RESPONSE, REJECTED, UNREACHABLE or CONNECT_ERROR follows. At most 56 bytes of private
  // data.
  Status connect(const QueuePairBase& qp, const ConnectionParameters& parameters, ReadDepths depths,
                 Bytes private_data);
  // Completes the active side's handshake after CONNECT_RESPONSE.
  Status establish();
  // Passive side. ESTABLISHED follows. At most 196 bytes of private data.
  Status accept(const QueuePairBase& qp, const ConnectionParameters& parameters, ReadDepths depths,
                Bytes private_data);
  Status reject(Bytes reason);  // at most 148 bytes
  // Reports IBV_EVENT_COMM_EST of an accepted id's queue pair: data arrived before the peer's last
  // handshake message, which may be lost. ESTABLISHED follows. Source: rdma_notify(3).
  Status notify(ibv_event_type event);
  // Ends the connection; the peer gets DISCONNECTED. Not an error if it is already down. Before
  // ESTABLISHED of the passive side the kernel sends nothing and reports success: that peer gets
  // REJECTED when the id is destroyed. (A reject now would make the destruction wait a minute for
  // the answer to the accept.)
  Status disconnect();

 private:
  friend class CmEvent;
  explicit CmId(std::shared_ptr<detail::CmIdState> state) : CmIdBase(std::move(state)) {}
};

}  // namespace rkv::rdma
