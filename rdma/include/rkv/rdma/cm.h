// The connection manager's own objects: event channel, event, id. Most programs want connect.h or
// datagram_service.h, which drive them; these are for programs with an event loop of their own.
//
//   RKV_ASSIGN_OR_RETURN(EventChannel channel, EventChannel::create());
//   RKV_ASSIGN_OR_RETURN(CmId id, CmId::create(channel));
//   RKV_RETURN_IF_ERROR(id.resolve_address(peer, nullptr, 1000));
//   RKV_ASSIGN_OR_RETURN(CmEvent event, channel.wait(deadline));   // ADDR_RESOLVED
//
// Queue pairs are made by the program (queue_pair.h) and never by librdmacm, so that the program
// chooses what the peer may do: librdmacm would grant remote WRITE. They are PreparedQueuePairs
// until to_ready() has succeeded.
//
// A CmId makes connections and a DatagramId (datagram_service.h) looks datagram services up: what
// only one of them has, the other does not compile. Both may share one channel.
//
// Thread safety: an EventChannel is read by one thread; calls on a CmId come from one thread at a
// time, which need not be the reader. Source: rdma_cm(7).
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "rkv/bytes.h"
#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/address.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/result.h"

namespace rkv::rdma {

// Private data that InfiniBand and RoCE carry in each message. The receiver always sees the full
// size, padded with zeros: send a length of your own.
inline constexpr std::size_t kConnectRequestBytes = 56;
inline constexpr std::size_t kConnectReplyBytes = 196;
inline constexpr std::size_t kRejectBytes = 148;
// Of the look-up of a datagram service: the request, and an answer of either kind.
inline constexpr std::size_t kLookupRequestBytes = 180;
inline constexpr std::size_t kLookupReplyBytes = 136;

// Where the numbers of ports count; two ids of different spaces may have the same. kIb is for
// peers that ask for it: with addresses of IP it is like kTcp, but apart from it.
enum class ConnectionPorts : std::uint16_t { kTcp = RDMA_PS_TCP, kIb = RDMA_PS_IB };
// kIpoib reaches queue pairs of IP over InfiniBand; of RoCE kUnsupported comes.
enum class DatagramPorts : std::uint16_t { kUdp = RDMA_PS_UDP, kIpoib = RDMA_PS_IPOIB };

// A copy of the private data of an event.
class RKV_EXPORT PrivateData {
 public:
  PrivateData() = default;
  explicit PrivateData(Bytes bytes);
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
  // rdma_create_event_channel(3); non-blocking, closed on exec. kNoDevice where the kernel has no
  // connection manager.
  static Result<EventChannel> create();
  EventChannel(EventChannel&&) = default;
  EventChannel& operator=(EventChannel&&) = default;
  EventChannel share() const { return EventChannel(state_); }

  int fd() const;
  // The next event, or nothing. Does not block.
  Result<std::optional<CmEvent>> next();
  // Blocks until there is one; kTimeout when the deadline passed.
  Result<CmEvent> wait(const Deadline& deadline);
  rdma_event_channel* raw() const;

 private:
  friend class CmIdBase;
  explicit EventChannel(std::shared_ptr<detail::EventChannelState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<detail::EventChannelState> state_;
};

// An event; acknowledged when this is destroyed. It keeps its id alive, since librdmacm cannot
// destroy an id that has an unacknowledged event. A connect request nobody took is rejected.
class RKV_EXPORT CmEvent {
 public:
  CmEvent(CmEvent&& other) noexcept;
  CmEvent& operator=(CmEvent&&) = delete;
  ~CmEvent();

  rdma_cm_event_type type() const { return raw_->event; }
  int status() const { return raw_->status; }  // errno, negative, or a reject reason
  const char* name() const;                    // "RDMA_CM_EVENT_ESTABLISHED"
  // What was stored by CmId::set_owner() of the id this is about; for a connect request the owner
  // of the listening id. nullptr where there is none or it is gone.
  std::shared_ptr<void> owner() const;
  // Valid as long as the event. Empty for events that carry none.
  Bytes private_data() const;
  // What the peer asks of us in a connect request or grants in a response.
  ReadDepths peer_depths() const;
  // Whether it is about a DatagramId.
  bool is_datagram() const { return raw_->id->qp_type == IBV_QPT_UD; }
  // CONNECT_REQUEST: the new id, once. The first REQUIRES: !is_datagram(); the second the contrary.
  CmId take_request();
  DatagramId take_datagram_request();
  // ESTABLISHED of a DatagramId: what was looked up. REQUIRES: is_datagram().
  DatagramService datagram_service() const;
  // What an event other than success means for the one who waited.
  Error error() const;
  rdma_cm_event* raw() const { return raw_; }

 private:
  friend class EventChannel;
  CmEvent(rdma_cm_event* raw, std::shared_ptr<detail::EventChannelState> channel);
  rdma_cm_event* raw_;
  std::shared_ptr<detail::EventChannelState> channel_;
  std::shared_ptr<detail::CmIdState> id_;  // the id it is about, or the new id of a request
};

// What ids of connections and of datagrams have.
class RKV_EXPORT CmIdBase {
 public:
  CmIdBase(CmIdBase&&) = default;
  CmIdBase& operator=(CmIdBase&&) = default;

  // Sets what CmEvent::owner() gives for events of this id. Not kept alive by the id.
  void set_owner(std::weak_ptr<void> owner);

  // Local address, port 0 for any. kNoDevice where no device has the address.
  Status bind(const SocketAddress& local);
  Status listen(int backlog);
  // ADDR_RESOLVED or ADDR_ERROR follows; device() is known then. `source` may be nullptr.
  Status resolve_address(const SocketAddress& peer, const SocketAddress* source, int timeout_ms);
  // Of the packets of the connection: the byte of IP's header that has DSCP in its upper six bits.
  // Must come before resolve_route; of a listening id, its connections take it.
  Status set_type_of_service(std::uint8_t value);
  // Both before bind(): an address that another id is bound to, as long as neither listens; and
  // whether `::` means IPv6 alone or IPv4 too, which else is the system's choice.
  Status set_reuse_address(bool allowed);
  Status set_ipv6_only(bool only);
  // ROUTE_RESOLVED or ROUTE_ERROR follows.
  Status resolve_route(int timeout_ms);
  // Events go to `channel` from now on. Waits until every event of the old one is acknowledged:
  // destroy CmEvents of this id first.
  Status migrate(const EventChannel& channel);

  bool has_device() const { return raw()->verbs != nullptr; }
  // REQUIRES: has_device(). The context librdmacm uses; make domains and queues on it. It stays
  // open for as long as the handle and what is made on it, without the id and after the device was
  // unplugged.
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

  // What the peer's connection manager proposes to its queue pair; ours takes to_ready()'s. Must
  // come before resolve_route. kUnsupported on old kernels.
  Status set_ack_timeout(AckTimeout timeout);

  // The queue pair's states, with what the connection manager knows about the path and with our
  // own access flags, timers and depths. To INIT before connect() or accept(); to_ready() after
  // CONNECT_RESPONSE or before accept(). Then the prepared queue pair's into_queue_pair().
  // These and connect() and accept(): kInvalidArgument for a queue pair of another device.
  Status to_init(QueuePairBase& qp, const ConnectionParameters& parameters);
  Status to_ready(QueuePairBase& qp, const ConnectionParameters& parameters, ReadDepths depths);
  // CONNECT_RESPONSE, REJECTED, UNREACHABLE or CONNECT_ERROR follows. At most 56 bytes.
  Status connect(const QueuePairBase& qp, const ConnectionParameters& parameters, ReadDepths depths,
                 Bytes private_data);
  // Ends the active side's handshake after CONNECT_RESPONSE.
  Status establish();
  // Passive side. ESTABLISHED follows. At most 196 bytes.
  Status accept(const QueuePairBase& qp, const ConnectionParameters& parameters, ReadDepths depths,
                Bytes private_data);
  Status reject(Bytes reason);  // at most 148 bytes
  // Hands on IBV_EVENT_COMM_EST of an accepted id's queue pair: data has come before the peer's
  // last word of the handshake, which may be lost. ESTABLISHED follows. Source: rdma_notify(3).
  Status notify(ibv_event_type event);
  // The peer gets DISCONNECTED. Calling it on a connection that is already down is no error.
  Status disconnect();

 private:
  friend class CmEvent;
  explicit CmId(std::shared_ptr<detail::CmIdState> state) : CmIdBase(std::move(state)) {}
};

}  // namespace rkv::rdma
