// Connections by address, in one call: dial() on one side, ChannelListener on the other. Both give
// a Channel (channel.h) with queues, timers and rights from one structure.
//
//   // Passive.
//   RKV_ASSIGN_OR_RETURN(ChannelListener listener, ChannelListener::listen("192.0.2.7:7471"));
//   RKV_ASSIGN_OR_RETURN(Channel peer, listener.accept({}, Deadline::in(60s)));
//   RKV_ASSIGN_OR_RETURN(MemoryRegion memory,
//       MemoryRegion::allocate(peer.domain(), 4096, AccessFlags::kLocalWrite));
//   RKV_ASSIGN_OR_RETURN(Done got, peer.receive(memory.local(), Deadline::in(5s)));
//
//   // Active.
//   RKV_ASSIGN_OR_RETURN(Channel peer, dial("192.0.2.7:7471", {}, Deadline::in(5s)));
//   RKV_RETURN_IF_ERROR(peer.send(message, Deadline::in(5s)));
//
// A waiting operation of such a channel also ends when the peer disconnects or the device is
// removed: kDisconnected, kNoDevice.
//
// A message that finds no receive waits for one on InfiniBand and RoCE. On iWARP it ends the
// connection: name a buffer in DialOptions::expected, or call Channel::expect(), before the peer
// can send. On iWARP the side that dialled sends first.
//
// Thread safety: one thread at a time for each object. Source: rdma_cm(7).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "rkv/bytes.h"
#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/channel.h"
#include "rkv/rdma/connect.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct DialOptions {
  ChannelOptions channel = {};
  // The peer's rights on this side's regions, timers, READ depths.
  ConnectionParameters link = {};
  // Bytes for the peer, which finds them in Channel::peer_data(), padded with zeros. At most 56
  // bytes from the side that dials, 196 from the side that accepts.
  Bytes hello = {};
  // The channel's protection domain, on the device that serves the address. nullptr: the
  // listener's, or a new one.
  const ProtectionDomain* domain = nullptr;
  // A receive that is posted before the peer can send: Channel::expect(). Registered in the
  // channel's domain; dial() needs `domain` for it (kInvalidArgument).
  std::optional<RegisteredSpan> expected = std::nullopt;
};

// Connects to a ChannelListener or any other listener of the connection manager. "HOST:PORT" is
// resolved, and each of its addresses tried, in their order, with its share of the time. Blocks
// until the deadline at most. Errors: those of Connector::resolve() and Connector::connect().
// kRejected: the peer's reason goes to `refusal` if that is not null.
RKV_EXPORT Result<Channel> dial(std::string_view address, const DialOptions& options,
                                const Deadline& deadline, PrivateData* refusal = nullptr);
RKV_EXPORT Result<Channel> dial(const SocketAddress& address, const DialOptions& options,
                                const Deadline& deadline, PrivateData* refusal = nullptr);

// A client that waits for an answer. If destroyed without one, it is rejected.
class RKV_EXPORT ChannelRequest {
 public:
  Bytes peer_data() const { return request_.private_data(); }
  SocketAddress peer_address() const { return request_.peer_address(); }
  // The protection domain for memory that the channel uses.
  const ProtectionDomain& domain() const { return domain_; }

  // Answers, and does not wait for the client: a client that never finishes its handshake delays
  // nobody. The first operation that sends waits for the handshake. If the operation's deadline
  // passes first, nothing was sent and the channel is given up (kDisconnected). Errors: those of
  // ConnectRequest::accept().
  Result<Channel> accept(const DialOptions& options) &&;
  // Like ConnectRequest::reject().
  Status reject(Bytes reason) && { return std::move(request_).reject(reason); }

 private:
  friend class ChannelListener;
  ChannelRequest(ConnectRequest request, ProtectionDomain domain)
      : request_(std::move(request)), domain_(std::move(domain)) {}
  ConnectRequest request_;
  ProtectionDomain domain_;
};

class RKV_EXPORT ChannelListener {
 public:
  // Port 0 takes a free one. Errors: those of CmListener::listen().
  static Result<ChannelListener> listen(std::string_view address,
                                        const ListenOptions& options = {});
  static Result<ChannelListener> listen(const SocketAddress& address,
                                        const ListenOptions& options = {});

  // Waits for the next client. Blocks. Fails with kTimeout, or with kNoDevice like
  // CmListener::wait().
  Result<ChannelRequest> next(const Deadline& deadline);
  // next() and ChannelRequest::accept().
  Result<Channel> accept(const DialOptions& options, const Deadline& deadline);

  SocketAddress address() const { return listener_.address(); }
  std::uint16_t port() const { return listener_.port(); }
  // The domain of all channels on the address's device, for memory that all clients use.
  // kInvalidArgument: a wildcard address has no device before the first request.
  Result<ProtectionDomain> domain();

 private:
  explicit ChannelListener(CmListener listener) : listener_(std::move(listener)) {}
  Result<ProtectionDomain> domain_of(const Device& device);
  CmListener listener_;
  std::vector<ProtectionDomain> domains_;  // one for each device that a request came from
};

}  // namespace rkv::rdma
