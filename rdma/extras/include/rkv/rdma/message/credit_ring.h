// A ring whose reader reports the space that it has freed. Each message that the reader sends
// carries the report at no cost. When a quarter of the ring or of the slots is free and unreported,
// the reader sends a credit of 8 bytes. It suits traffic in both directions. The writer posts no
// READs.
//
//   CreditRingBuilder builder{{.ring_bytes = 1 << 20}};
//   RKV_ASSIGN_OR_RETURN(CmListener listener, builder.listen(address));
//   RKV_ASSIGN_OR_RETURN(CreditRingTransport server, builder.accept(listener, deadline));
//   // elsewhere
//   RKV_ASSIGN_OR_RETURN(CreditRingTransport client, builder.connect(address, deadline));
//
// Invariants and thread safety: ring_transport.h.
#pragma once

#include <optional>

#include "rkv/rdma/message/message_driver.h"
#include "rkv/rdma/message/ring_transport.h"

namespace rkv::rdma {

class RKV_EXPORT CreditRingTransport : public RingTransport {
 private:
  friend struct CreditRingBuilder;
  using RingTransport::RingTransport;
};
static_assert(MessageTransport<CreditRingTransport>);

struct RKV_EXPORT CreditRingBuilder {
  using Transport = CreditRingTransport;
  using Listener = CmListener;

  RingOptions options;
  std::optional<MessageDriver> driver = {};  // else each transport has queues of its own

  Result<CmListener> listen(const SocketAddress& local) const { return CmListener::listen(local); }
  // kInvalidArgument names the option and its range.
  // connect() waits for the server: it has no steps and no coroutine. A thread that must not wait
  // lets another one connect, without this driver.
  Result<Transport> connect(const SocketAddress& peer, const Deadline& deadline) const;
  // Both wait for the peer: a client that does not finish its handshake, or does not send the key
  // of its ring, keeps accept() until the deadline. start_accept() answers a request of
  // CmListener::next() and does not wait.
  Result<Transport> accept(CmListener& listener, const Deadline& deadline) const;
  Result<AcceptingTransport<Transport>> start_accept(ConnectRequest request) const;
};
static_assert(TransportBuilder<CreditRingBuilder>);

}  // namespace rkv::rdma
