// Connecting by address: Connector on the active side, CmListener on the passive side. Datagrams,
// which need no connection but an address too: datagram_service.h.
//
//   // Active: the device is known after resolve(), so that queues can be made on it.
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
#include <optional>
#include <tuple>
#include <utility>

#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/rdma/cm.h"

namespace rkv::rdma {

// Both ends of a connection look the same. Destruction goes queue pair, id, channel; the peer is
// told by the kernel.
struct RKV_EXPORT CmConnection {
  EventChannel channel;
  CmId id;
  QueuePair qp;
  PrivateData peer_data;  // what the peer sent, padded with zeros
  // What was agreed: our READs outstanding, the peer's. An initiator of 0 is a peer that answers
  // none: a READ or atomic fails when it is posted, or on SoftRoCE never ends.
  ReadDepths depths;
  // What the event channel has told so far; check() and wait_established() keep it.
  bool established = false;
  std::optional<Error> ended = std::nullopt;
  bool peer_left = false;  // `ended` by the peer's disconnecting, and by nothing that broke

  // Passive side: blocks until the active side has finished the handshake. The connection may be
  // used before: data that arrives proves that it stands. kTimeout, kDisconnected.
  Status wait_established(const Deadline& deadline);
  // Whether the connection has ended meanwhile: reads the event channel, does not block.
  // kDisconnected when the peer has left, kNoDevice when the device was removed, and the same again
  // on every later call. A host that dies says nothing: only deadlines, or work that fails, tell.
  // A bond's failing over is no end.
  Status check();
  // Tells the peer and moves the queue pair to the error state, so that outstanding work completes
  // as flushed. Does not wait for either.
  Status disconnect();

 private:
  void take(const CmEvent& event);
};

struct ResolveOptions {
  // What the peer is asked to use: a peer with this library uses its own, by its
  // ConnectionParameters, as this side does by those of connect().
  AckTimeout ack_timeout = kDefaultAckTimeout;
  const SocketAddress* source = nullptr;  // local address to start from, else the route's
  std::optional<std::uint8_t> type_of_service = std::nullopt;  // CmId::set_type_of_service()
};

class RKV_EXPORT Connector {
 public:
  // Finds device and path. Blocks until the deadline at most. kUnreachable, kNoDevice, kTimeout.
  static Result<Connector> resolve(const SocketAddress& peer, const ResolveOptions& options,
                                   const Deadline& deadline);

  Device device() const { return id_.device(); }
  std::uint8_t port_number() const { return id_.port_number(); }
  SocketAddress local_address() const { return id_.local_address(); }

  // Moves the queue pair to INIT, where receives of its own can be posted; connect() does it
  // otherwise. A shared receive queue needs no such step.
  Status prepare(PreparedQueuePair<>& qp, const ConnectionParameters& parameters);
  // `qp` made on device(), in state RESET or INIT; on an error it is destroyed. What `parameters`
  // say holds, whatever it was prepared with. Blocks until the deadline at most; on success the
  // queue pair can be used. `private_data` at most 56 bytes. kInvalidArgument: another device's.
  // kUnreachable: nobody listens or answers; kRejected: the peer refused, its bytes go to
  // `rejection` when that is not null; kTimeout.
  Result<CmConnection> connect(PreparedQueuePair<> qp, const ConnectionParameters& parameters,
                               Bytes private_data, const Deadline& deadline,
                               PrivateData* rejection = nullptr) &&;

 private:
  Connector(EventChannel channel, CmId id) : channel_(std::move(channel)), id_(std::move(id)) {}
  EventChannel channel_;
  CmId id_;
};

// What a peer asks for, until it is answered. Dropped without an answer, it is rejected.
template <class Id>
class IncomingRequest {
 public:
  // Not defaulted: a moved-from optional stays engaged, and its destructor would reject nothing.
  IncomingRequest(IncomingRequest&& other) noexcept
      : id_(std::exchange(other.id_, std::nullopt)), data_(other.data_) {}
  IncomingRequest& operator=(IncomingRequest&&) = delete;

  Bytes private_data() const { return data_.bytes(); }
  SocketAddress peer_address() const { return id().peer_address(); }
  Device device() const { return id().device(); }
  std::uint8_t port_number() const { return id().port_number(); }
  // The peer finds the reason in `rejection`. At most 148 bytes; of a look-up 136.
  Status reject(Bytes reason) && {
    const Status status = id().reject(reason);
    if (status) id_.reset();
    return status;
  }

 protected:
  IncomingRequest(Id id, Bytes data) : id_(std::move(id)), data_(data) {}
  ~IncomingRequest() {
    // An error means that the peer has given up meanwhile.
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

  // CmId::set_owner() of the connection to be, before the first event about it can come.
  void set_owner(std::weak_ptr<void> owner) { id().set_owner(std::move(owner)); }
  // As Connector::prepare().
  Status prepare(PreparedQueuePair<>& qp, const ConnectionParameters& parameters);
  // `qp` and `parameters` as Connector::connect(). Does not wait for the peer: what becomes of
  // the handshake arrives on the connection's channel. `channel` is where its events shall go;
  // nullptr makes a new one. At most 196 bytes of private data.
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
  // Until when an address may turn up: right after an interface or a device was set up, the kernel
  // knows for a moment of no RDMA device that has it. None: it is there now or never.
  std::optional<Deadline> until = std::nullopt;
};

// What listeners for connections and for look-ups have.
class RKV_EXPORT CmListenerBase {
 public:
  int fd() const { return channel_.fd(); }  // readable when next() has something to do
  SocketAddress address() const { return id_.local_address(); }
  std::uint16_t port() const { return address().port(); }
  // That of the address, before anybody asks; of a wildcard there is none.
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
  std::optional<Error> lost_ = std::nullopt;  // why there will be no further request
};

class RKV_EXPORT CmListener : public CmListenerBase {
 public:
  static constexpr int kDefaultBacklog = ListenOptions{}.backlog;

  // Port 0 takes a free one. kConflict: taken; kNoDevice: no RDMA device has the address.
  static Result<CmListener> listen(const SocketAddress& local, int backlog = kDefaultBacklog);
  static Result<CmListener> listen(const SocketAddress& local, const ListenOptions& options);

  // The next request or nothing; does not block. wait() blocks; kTimeout. kNoDevice: the device of
  // the address was removed, and from then on there are no requests. Destroy the listener then,
  // since the kernel waits for that. A listener on a wildcard is of no device.
  Result<std::optional<ConnectRequest>> next();
  Result<ConnectRequest> wait(const Deadline& deadline);

 private:
  CmListener(EventChannel channel, CmIdBase id)
      : CmListenerBase(std::move(channel), std::move(id)) {}
  static ConnectRequest taken(CmEvent event);
};

}  // namespace rkv::rdma
