// Datagram services found by address and port: what a client has to know to send the first
// datagram, asked for through the connection manager. No connection comes of it.
//
//   // The one who offers it. The queue pair serves all who ask.
//   RKV_ASSIGN_OR_RETURN(DatagramListener listener, DatagramListener::listen(address));
//   RKV_ASSIGN_OR_RETURN(auto qp, std::move(prepared).activate(kDatagramQkey));
//   RKV_ASSIGN_OR_RETURN(DatagramRequest request, listener.wait(deadline));
//   RKV_RETURN_IF_ERROR(std::move(request).accept(qp, as_bytes("welcome")));
//
//   // The one who asks: the device is known after resolve(), so that a domain can be made on it.
//   RKV_ASSIGN_OR_RETURN(auto resolver, DatagramResolver::resolve(server, {}, deadline));
//   RKV_ASSIGN_OR_RETURN(const DatagramPeer peer,
//                        std::move(resolver).look_up(pd, as_bytes("hello"), deadline));
//   batch.to(peer.handle, peer.qp_num, peer.qkey).send(1, OpFlags::kSignaled, message);
//
// The Q_Key is the port space's and not the program's: whoever addresses a service by IP is told
// kDatagramQkey, and accept() refuses a queue pair that has another. So it keeps nobody out.
//
// A question or an answer may be lost, and is then asked again: the same request may come twice.
//
// For an event loop of the program's own there is DatagramId, on a channel like a CmId's.
//
// Thread safety: one thread at a time per object. Source: rdma_connect(3), rdma_accept(3) (those
// of RDMA_PS_UDP), InfiniBand specification 12.11 (service ID resolution).
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <optional>

#include "rkv/export.h"
#include "rkv/rdma/address_handle.h"
#include "rkv/rdma/cm.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma {

// What the datagrams of services under DatagramPorts::kUdp carry.
inline constexpr std::uint32_t kDatagramQkey = RDMA_UDP_QKEY;

// Where a service receives: an answer as it came.
struct DatagramService {
  AddressAttributes address;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
};

// An id for datagrams, on an event channel. Who asks: resolve_address(), resolve_route(),
// look_up(). Who answers: bind(), listen(), and accept() or reject() of CmEvent's
// take_datagram_request(); no event follows, and the id may go.
class RKV_EXPORT DatagramId : public CmIdBase {
 public:
  static Result<DatagramId> create(const EventChannel& channel,
                                   DatagramPorts ports = DatagramPorts::kUdp);

  // What accept() tells peers, and with what a queue pair of this id is to be activated.
  // REQUIRES: has_device().
  Result<std::uint32_t> qkey() const;
  // To INIT on the id's port and in its partition, where receives can be posted.
  // REQUIRES: has_device().
  Status to_init(PreparedQueuePair<Ud>& qp);

  // ESTABLISHED, with CmEvent::datagram_service(), or UNREACHABLE follows. At most 180 bytes.
  Status look_up(Bytes private_data);
  // At most 136 bytes. kInvalidArgument where datagrams to `qp` would be dropped: it is of another
  // device than the request came to, or was activated with another key than qkey().
  Status accept(const BasicQueuePair<Ud>& qp, Bytes private_data);
  Status reject(Bytes reason);  // at most 136 bytes

 private:
  friend class CmEvent;
  explicit DatagramId(std::shared_ptr<detail::CmIdState> state) : CmIdBase(std::move(state)) {}
};

// A service that was found, with the way to it.
struct DatagramPeer {
  AddressHandle handle;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
  AddressAttributes address;  // what `handle` was made of, for one of another domain
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

  // As DatagramId::to_init(). Then activate() it, with the key that the service has if it is to
  // answer without asking.
  Status prepare(PreparedQueuePair<Ud>& qp) { return id_.to_init(qp); }
  // `pd` is of device(), or of the same device opened elsewhere. At most 180 bytes of private data.
  // kUnreachable: nobody listens, or nobody answered for a minute; kRejected: the service refused,
  // its bytes go to `rejection` when that is not null; kTimeout: the deadline came first.
  Result<DatagramPeer> look_up(const ProtectionDomain& pd, Bytes private_data,
                               const Deadline& deadline, PrivateData* rejection = nullptr) &&;

 private:
  DatagramResolver(EventChannel channel, DatagramId id)
      : channel_(std::move(channel)), id_(std::move(id)) {}
  EventChannel channel_;
  DatagramId id_;
};

// A peer that asks where to send. Dropped without an answer, it is rejected.
class RKV_EXPORT DatagramRequest : public IncomingRequest<DatagramId> {
 public:
  // As DatagramId::to_init() and qkey(): for a queue pair that is made for this peer alone.
  Status prepare(PreparedQueuePair<Ud>& qp) { return id().to_init(qp); }
  Result<std::uint32_t> qkey() const { return id().qkey(); }
  // As DatagramId::accept(). The peer may send from now on, and is heard of no more: there is
  // nothing to end.
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

  // The next request or nothing; does not block. wait() blocks; kTimeout.
  Result<std::optional<DatagramRequest>> next();
  Result<DatagramRequest> wait(const Deadline& deadline);

 private:
  DatagramListener(EventChannel channel, CmIdBase id)
      : CmListenerBase(std::move(channel), std::move(id)) {}
  static DatagramRequest taken(CmEvent event);
};

}  // namespace rkv::rdma
