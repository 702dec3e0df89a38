// A message is a SEND into one of the peer's receive buffers: one work request each. The simplest
// message transport over verbs; it needs no remote access.
//
//   SendReceiveBuilder builder{SendReceiveOptions::stream()};
//   RKV_ASSIGN_OR_RETURN(CmListener listener, builder.listen(address));
//   RKV_ASSIGN_OR_RETURN(SendReceiveTransport server, builder.accept(listener, deadline));
//   // elsewhere
//   RKV_ASSIGN_OR_RETURN(SendReceiveTransport client, builder.connect(address, deadline));
//
// Invariants, besides those of transport.h:
//   SENDRECV-1  At most send_buffers SENDs are posted and not reaped. The send queue and its
//       completion queue have that many entries and cannot overflow.
//   SENDRECV-2  A send buffer is reused only after its completion is reaped. Completions of a queue
//       pair arrive in order, so the oldest buffer is always the next one.
//   SENDRECV-3  A receive buffer is either posted, or holds a waiting message, or is lent to the
//       caller. Only release() posts it again.
//
// A peer that does not release its messages stops this side by "receiver not ready": its device
// answers with RNR NAKs until a buffer is posted, and the sends stay in flight. Only the caller's
// deadline ends that wait. To avoid it, configure more receive buffers than the peer has send
// buffers.
//
// Thread safety: one thread at a time. Source: ibv_post_send(3), ibv_post_recv(3).
#pragma once

#include <cstdint>
#include <memory>

#include "rkv/export.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/message/accepting.h"
#include "rkv/rdma/message/transport_of.h"

namespace rkv::rdma {

struct RKV_EXPORT SendReceiveOptions {
  std::uint32_t message_bytes = 65536;  // longest message; the smaller side counts; 1 to 16 Mi
  std::uint32_t send_buffers = 4;       // sends in flight; 1 to 8192
  std::uint32_t receive_buffers = 16;   // messages before one must be released; 1 to 8192
  std::uint32_t inline_bytes = 0;       // up to this length without a send buffer; 0 to 512

  // Few large buffers, for a byte stream: `depth` sends in flight, and eight receive buffers per
  // send.
  static SendReceiveOptions stream(std::uint32_t depth = 1);
  // Many small buffers, for messages below an Ethernet packet.
  static SendReceiveOptions datagram();
};

namespace detail {
class SendReceiveState;
}
extern template class RKV_EXPORT TransportOf<detail::SendReceiveState>;

class RKV_EXPORT SendReceiveTransport : public TransportOf<detail::SendReceiveState> {
 public:
  // The underlying queue pair, for operations that this class does not offer.
  const QueuePair& queue_pair() const;

 private:
  friend struct SendReceiveBuilder;
  friend class AcceptingTransport<SendReceiveTransport>;
  Result<bool> try_finish();
  explicit SendReceiveTransport(std::unique_ptr<detail::SendReceiveState> state);
};
static_assert(MessageTransport<SendReceiveTransport>);

struct RKV_EXPORT SendReceiveBuilder {
  using Transport = SendReceiveTransport;
  using Listener = CmListener;

  SendReceiveOptions options;

  Result<CmListener> listen(const SocketAddress& local) const { return CmListener::listen(local); }
  // kInvalidArgument names the option and its range.
  // connect() waits for the server: it has no steps and no coroutine. A thread that must not wait
  // lets another one connect.
  Result<Transport> connect(const SocketAddress& peer, const Deadline& deadline) const;
  // Both wait for the peer: a client that does not finish its handshake keeps accept() until the
  // deadline. start_accept() answers a request of CmListener::next() and does not wait.
  Result<Transport> accept(CmListener& listener, const Deadline& deadline) const;
  Result<AcceptingTransport<Transport>> start_accept(ConnectRequest request) const;
};
static_assert(TransportBuilder<SendReceiveBuilder>);

}  // namespace rkv::rdma
