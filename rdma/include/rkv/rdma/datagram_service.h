// Datagram services found by address and port. A client's lookup (SIDR) returns the address, queue
// pair number and Q_Key of the service. No connection is established.
//
//   // The service. Its queue pair serves all clients.
//   RKV_ASSIGN_OR_RETURN(DatagramListener listener, DatagramListener::listen(address));
//   RKV_ASSIGN_OR_RETURN(auto qp, std::move(prepared).activate(kDatagramQkey));
//   RKV_ASSIGN_OR_RETURN(DatagramRequest request, listener.wait(deadline));
//   RKV_RETURN_IF_ERROR(std::move(request).accept(qp, as_bytes("welcome")));
//
//   // The client: the device is known after resolve(), so a domain can be created on it.
//   RKV_ASSIGN_OR_RETURN(auto resolver, DatagramResolver::resolve(server, {}, deadline));
//   RKV_ASSIGN_OR_RETURN(const DatagramPeer peer,
//                        std::move(resolver).look_up(pd, as_bytes("hello"), deadline));
//   batch.op(1).signaled().to(peer.handle, peer.qp_num, peer.qkey).send(message);
//
// The Q_Key belongs to the port space, not to the program. Every client that addresses a service by
// IP receives kDatagramQkey, and accept() refuses a queue pair that has another. So the Q_Key
// excludes no client.
//
// A request or an answer may be lost and is then resent: the same request may arrive twice.
//
// Programs with their own event loop use DatagramId, on a channel like a CmId's.
//
// Thread safety: one thread at a time per object. Source: rdma_connect(3), rdma_accept(3) (the
// parts on RDMA_PS_UDP), InfiniBand specification 12.11 (service ID resolution).
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/address_handle.h"
#include "rkv/rdma/cm.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma {

// The Q_Key in datagrams of services under DatagramPorts::kUdp.
inline constexpr std::uint32_t kDatagramQkey = RDMA_UDP_QKEY;

// The receiving end of a service, as returned by a lookup.
struct DatagramService {
  AddressAttributes address;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
};

// An id for datagrams, on an event channel. A client calls resolve_address(), resolve_route(),
// look_up(). A service calls bind(), listen(), then accept() or reject() on the id of CmEvent's
// take_datagram_request(). No event follows, and that id may be destroyed.
class RKV_EXPORT DatagramId : public CmIdBase {
 public:
  static Result<DatagramId> create(const EventChannel& channel,
                                   DatagramPorts ports = DatagramPorts::kUdp);

  // The Q_Key that accept() sends to peers. A queue pair of this id must be activated with it.
  // REQUIRES: has_device().
  Result<std::uint32_t> qkey() const;
  // Moves `qp` to INIT on the id's port and in its partition, where receives can be posted.
  // REQUIRES: has_device().
  Status to_init(PreparedQueuePair<Ud>& qp);

  // ESTABLISHED, with CmEvent::datagram_service(), or UNREACHABLE follows. At most 180 bytes of
  // private data.
  Status look_up(Bytes private_data);
  // Answers the request. At most 136 bytes of private data. kInvalidArgument if datagrams to `qp`
  // would be dropped: its device differs from the request's, or it was activated with a key other
  // than qkey().
  Status accept(const BasicQueuePair<Ud>& qp, Bytes private_data);
  Status reject(Bytes reason);  // at most 136 bytes

 private:
  friend class CmEvent;
  explicit DatagramId(std::shared_ptr<detail::CmIdState> state) : CmIdBase(std::move(state)) {}
};

// A service that was found, with its address.
struct DatagramPeer {
  AddressHandle handle;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
  AddressAttributes address;  // the attributes of `handle`, to create a handle in another domain
  PrivateData peer_data;      // what the service sent, padded with zeros
};

struct DatagramResolveOptions {
  const SocketAddress* source = nullptr;  // local address to start from, else the route's
  std::optional<std::uint8_t> type_of_service = std::nullopt;  // CmIdBase::set_type_of_service()
  DatagramPorts ports = DatagramPorts::kUdp;
};

class RKV_EXPORT DatagramResolver {
 public:
  // Finds device and path. Blocks until the deadline at most. kUnreachable, kNoDevice, kTimeout.
  static Result<DatagramResolver> resolve(const SocketAddress& service,
                                          const DatagramResolveOptions& options,
                                          const Deadline& deadline);

  Device device() const { return id_.device(); }
  std::uint8_t port_number() const { return id_.port_number(); }
  SocketAddress local_address() const { return id_.local_address(); }

  // As DatagramId::to_init(). Then activate() it; use the service's key if the service should
  // answer without a lookup of its own.
  Status prepare(PreparedQueuePair<Ud>& qp) { return id_.to_init(qp); }
  // Looks up the service. `pd` belongs to device(), or to the same device opened separately. At
  // most 180 bytes of private data. kInvalidArgument: `pd` belongs to another device. kUnreachable:
  // no listener, or no answer for a minute. kRejected: the service refused; its bytes go to
  // `rejection` if that is not null. kTimeout: the deadline passed first.
  Result<DatagramPeer> look_up(const ProtectionDomain& pd, Bytes private_data,
                               const Deadline& deadline, PrivateData* rejection = nullptr) &&;

 private:
  DatagramResolver(EventChannel channel, DatagramId id)
      : channel_(std::move(channel)), id_(std::move(id)) {}
  EventChannel channel_;
  DatagramId id_;
};

// A client's lookup request. If destroyed without an answer, it is rejected.
class RKV_EXPORT DatagramRequest : public IncomingRequest<DatagramId> {
 public:
  // As DatagramId::to_init() and qkey(): for a queue pair created for this peer alone.
  Status prepare(PreparedQueuePair<Ud>& qp) { return id().to_init(qp); }
  Result<std::uint32_t> qkey() const { return id().qkey(); }
  // As DatagramId::accept(). The peer may send from now on. No later event reports on the peer, and
  // there is no connection to end.
  Status accept(const BasicQueuePair<Ud>& qp, Bytes private_data) &&;

 private:
  friend class DatagramListener;
  DatagramRequest(DatagramId id, Bytes data) : IncomingRequest(std::move(id), data) {}
};

class RKV_EXPORT DatagramListener : public CmListenerBase {
 public:
  // As CmListener::listen().
  static Result<DatagramListener> listen(const SocketAddress& local,
                                         const ListenOptions& options = {},
                                         DatagramPorts ports = DatagramPorts::kUdp);

  // next() returns a request or nothing and does not block. wait() blocks; kTimeout.
  Result<std::optional<DatagramRequest>> next();
  Result<DatagramRequest> wait(const Deadline& deadline);

 private:
  DatagramListener(EventChannel channel, CmIdBase id)
      : CmListenerBase(std::move(channel), std::move(id)) {}
  static DatagramRequest taken(CmEvent event);
};

}  // namespace rkv::rdma
