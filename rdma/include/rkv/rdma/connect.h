// Connecting by address: Connector on the active side, CmListener on the passive side. Datagrams
// need an address but no connection: see datagram_service.h.
//
//   // Active: the device is known after resolve(), so queues can be created on it.
//   RKV_ASSIGN_OR_RETURN(Connector connector, Connector::resolve(peer, {}, deadline));
//   ... make domain, queues and a queue pair on connector.device() ...
//   RKV_ASSIGN_OR_RETURN(CmConnection link,
//       std::move(connector).connect(std::move(qp), {}, hello, deadline));
//
//   // Passive.
//   RKV_ASSIGN_OR_RETURN(CmListener listener, CmListener::listen(address));
//   RKV_ASSIGN_OR_RETURN(ConnectRequest request, listener.wait(deadline));
//   ... make a queue pair on request.device(), prepare() it, post receives ...
//   RKV_ASSIGN_OR_RETURN(CmConnection link,
//       std::move(request).accept(std::move(qp), {.remote_access = AccessFlags::kRemoteRead}, {}));
//   RKV_RETURN_IF_ERROR(link.wait_established(deadline));
//
// Thread safety: one thread at a time per object. Source: rdma_cm(7), rdma_connect(3),
// rdma_accept(3).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/rdma/cm.h"

namespace rkv::rdma {

// A connection, the same type on both sides. The destructor destroys the queue pair, the id, then
// the channel; the kernel notifies the peer.
struct RKV_EXPORT CmConnection {
  EventChannel channel;
  CmId id;
  QueuePair qp;
  PrivateData peer_data;  // what the peer sent, padded with zeros
  // The agreed depths. `initiator`: READs and atomics of this side, `responder`: those of the peer.
  // With an initiator depth of 0 the peer answers none: posting a READ or atomic fails, or on
  // SoftRoCE it never completes.
  ReadDepths depths;
  // The state reported by the event channel so far; check() and wait_established() update it.
  bool established = false;
  std::optional<Error> ended = std::nullopt;
  bool peer_left = false;  // `ended` because the peer disconnected, not by a failure

  // Passive side: blocks until the active side has finished the handshake. The connection may be
  // used before that: arriving data proves that it is established. kTimeout, kDisconnected.
  Status wait_established(const Deadline& deadline);
  // The same without blocking, for a loop of the program: true once the handshake is finished.
  // False: call again when channel.fd() is readable. kDisconnected.
  Result<bool> try_established();
  // Checks whether the connection has ended: reads the event channel, does not block. kDisconnected
  // if the peer has disconnected, kNoDevice if the device was removed; every later call returns the
  // same. A crashed host sends nothing: only deadlines or failing work detect it. A bond's failover
  // does not end the connection.
  Status check();
  // Notifies the peer and moves the queue pair to the error state, so that outstanding work
  // completes as flushed. Does not wait for either. On the passive side a peer whose handshake is
  // not finished is notified by the destructor only (CmId::disconnect()).
  Status disconnect();

 private:
  void take(const CmEvent& event);
};

struct ResolveOptions {
  // The ACK timeout proposed to the peer. A peer with this library uses its own
  // ConnectionParameters instead. This side uses the parameters of connect().
  AckTimeout ack_timeout = kDefaultAckTimeout;
  const SocketAddress* source = nullptr;  // local address to start from, else the route's
  std::optional<std::uint8_t> type_of_service = std::nullopt;  // CmId::set_type_of_service()
};

class RKV_EXPORT Connector {
 public:
  // Finds device and path. Blocks until the deadline at most. kUnreachable, kNoDevice, kTimeout.
  static Result<Connector> resolve(const SocketAddress& peer, const ResolveOptions& options,
                                   const Deadline& deadline);
  // The same in steps that do not block, for a loop of the program. start() begins. try_resolve()
  // returns true when device() is known and connect() or start_connect() may be called. False: call
  // again when fd() is readable. `timeout_ms`: the kernel gives up each of the two steps then, with
  // kUnreachable. `options.source` is not used after the call. After an error only destroy it.
  static Result<Connector> start(const SocketAddress& peer, const ResolveOptions& options,
                                 int timeout_ms);
  Result<bool> try_resolve();
  int fd() const { return channel_.fd(); }
  Connector(Connector&&) noexcept;
  Connector& operator=(Connector&&) noexcept;
  // Abandons a handshake that has not finished: the kernel tells the peer.
  ~Connector();

  Device device() const { return id_.device(); }
  std::uint8_t port_number() const { return id_.port_number(); }
  SocketAddress local_address() const { return id_.local_address(); }

  // Moves the queue pair to INIT, where its own receives can be posted. Optional, since connect()
  // does it too. A shared receive queue does not need this step.
  Status prepare(PreparedQueuePair<>& qp, const ConnectionParameters& parameters);
  // Connects. `qp` was created on device() and is in state RESET or INIT; on an error it is
  // destroyed. `parameters` apply, whatever `qp` was prepared with. `private_data` has at most 56
  // bytes. Blocks until the deadline at most; on success the queue pair can be used.
  // kInvalidArgument: `qp` is of another device. kUnsupported: `parameters` request READs as
  // initiator, and the device or the peer supports none. Both: path parameters that the route lacks
  // (CmId::to_init()), before anything is sent. kUnreachable: no listener or no answer.
  // kRejected: the peer refused; its bytes go to `rejection` if that is not null. kTimeout.
  Result<CmConnection> connect(PreparedQueuePair<> qp, const ConnectionParameters& parameters,
                               Bytes private_data, const Deadline& deadline,
                               PrivateData* rejection = nullptr) &&;
  // The same in steps that do not block. start_connect() takes the queue pair and sends the
  // request. try_connect() returns nothing before the answer: call it again when fd() is
  // readable. After a connection or an error only destroy the connector.
  Status start_connect(PreparedQueuePair<> qp, const ConnectionParameters& parameters,
                       Bytes private_data);
  Result<std::optional<CmConnection>> try_connect(PrivateData* rejection = nullptr);

 private:
  enum class Stage : unsigned char { kAddress, kRoute, kResolved };
  struct Pending;  // the queue pair from start_connect() to the answer

  Connector(EventChannel channel, CmId id, const ResolveOptions& options, int timeout_ms);
  Status start_route();
  EventChannel channel_;
  CmId id_;
  AckTimeout ack_timeout_;
  std::optional<std::uint8_t> type_of_service_;
  int timeout_ms_;
  Stage stage_ = Stage::kAddress;
  std::unique_ptr<Pending> pending_;
};

// A peer's request until it is answered. If destroyed without an answer, it is rejected.
template <class Id>
class IncomingRequest {
 public:
  // Not defaulted: a moved-from optional stays engaged, and its destructor would call reject() on
  // an empty id.
  IncomingRequest(IncomingRequest&& other) noexcept
      : id_(std::exchange(other.id_, std::nullopt)), data_(other.data_) {}
  IncomingRequest& operator=(IncomingRequest&&) = delete;

  Bytes private_data() const { return data_.bytes(); }
  SocketAddress peer_address() const { return id().peer_address(); }
  // The address that the peer called.
  SocketAddress local_address() const { return id().local_address(); }
  Device device() const { return id().device(); }
  std::uint8_t port_number() const { return id().port_number(); }
  // Rejects the request; the peer finds `reason` in `rejection`. At most 148 bytes; 136 for a
  // lookup.
  Status reject(Bytes reason) && {
    const Status status = id().reject(reason);
    if (status) id_.reset();
    return status;
  }

 protected:
  IncomingRequest(Id id, Bytes data) : id_(std::move(id)), data_(data, kConnectRequestBytes) {}
  ~IncomingRequest() {
    // An error means that the request no longer exists: the peer has abandoned it.
    if (id_) std::ignore = id_->reject({});
  }
  Id& id() { return const_cast<Id&>(std::as_const(*this).id()); }
  const Id& id() const {
    RKV_CHECK(id_.has_value(), "a request that has been answered, or moved from");
    return *id_;
  }
  std::optional<Id> id_;  // empty when answered
  PrivateData data_;
};

class RKV_EXPORT ConnectRequest : public IncomingRequest<CmId> {
 public:
  ReadDepths peer_depths() const { return depths_; }

  // CmId::set_owner() of the future connection, before the first event about it can arrive.
  void set_owner(std::weak_ptr<void> owner) { id().set_owner(std::move(owner)); }
  // As Connector::prepare().
  Status prepare(PreparedQueuePair<>& qp, const ConnectionParameters& parameters);
  // Accepts the request. `qp` and `parameters` as in Connector::connect(). Does not wait for the
  // peer: the outcome of the handshake arrives on the connection's channel. `channel` receives its
  // events; nullptr creates a new one. At most 196 bytes of private data. kInvalidArgument,
  // kUnsupported: as in Connector::connect().
  Result<CmConnection> accept(PreparedQueuePair<> qp, const ConnectionParameters& parameters,
                              Bytes private_data, const EventChannel* channel = nullptr) &&;

 private:
  friend class CmListener;
  ConnectRequest(CmId id, Bytes data, ReadDepths depths)
      : IncomingRequest(std::move(id), data), depths_(depths) {}
  ReadDepths depths_;
};

struct ListenOptions {
  int backlog = 128;
  // CmId's set_type_of_service(), set_reuse_address(), set_ipv6_only().
  std::optional<std::uint8_t> type_of_service = std::nullopt;
  bool reuse_address = false;
  std::optional<bool> ipv6_only = std::nullopt;
  // How long an address may take to appear: right after an interface or a device was set up, the
  // kernel may not have assigned the address to an RDMA device yet. nullopt: the address must exist
  // now.
  std::optional<Deadline> until = std::nullopt;
};

// The common part of the listeners for connections and for lookups.
class RKV_EXPORT CmListenerBase {
 public:
  int fd() const { return channel_.fd(); }  // readable when next() may return a request
  SocketAddress address() const { return id_.local_address(); }
  std::uint16_t port() const { return address().port(); }
  // The device of the address, known before any request; none for a wildcard.
  std::optional<Device> device() const {
    return id_.has_device() ? std::optional(id_.device()) : std::nullopt;
  }

 protected:
  CmListenerBase(EventChannel channel, CmIdBase id)
      : channel_(std::move(channel)), id_(std::move(id)) {}
  static Status start(CmIdBase& id, const SocketAddress& local, const ListenOptions& options);
  Result<std::optional<CmEvent>> next_request();
  Result<CmEvent> wait_request(const Deadline& deadline);

 private:
  EventChannel channel_;
  CmIdBase id_;
  std::optional<Error> lost_ = std::nullopt;  // set when no further request can arrive
};

class RKV_EXPORT CmListener : public CmListenerBase {
 public:
  static constexpr int kDefaultBacklog = ListenOptions{}.backlog;

  // Port 0 takes a free one. kConflict: taken; kNoDevice: no RDMA device has the address.
  static Result<CmListener> listen(const SocketAddress& local, int backlog = kDefaultBacklog);
  static Result<CmListener> listen(const SocketAddress& local, const ListenOptions& options);

  // next() returns a request or nothing and does not block. wait() blocks; kTimeout. kNoDevice: the
  // device of the address was removed and there will be no further requests. Destroy the listener
  // then, since the kernel waits for that. A listener on a wildcard is not tied to a device.
  Result<std::optional<ConnectRequest>> next();
  Result<ConnectRequest> wait(const Deadline& deadline);

 private:
  CmListener(EventChannel channel, CmIdBase id)
      : CmListenerBase(std::move(channel), std::move(id)) {}
  static ConnectRequest taken(CmEvent event);
};

}  // namespace rkv::rdma
