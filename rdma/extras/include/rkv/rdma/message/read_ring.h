// A ring whose reader only stores the space that it has freed into a 64-byte line in its own
// memory. The writer READs that line when it is short of space. It suits one-way traffic to a
// reader that must not post requests. A writer that waits for space READs repeatedly, at intervals
// that grow to a millisecond.
//
//   ReadRingBuilder builder{{.ring_bytes = 1 << 20, .slots = 1024}};
//   RKV_ASSIGN_OR_RETURN(CmListener listener, builder.listen(address));
//   RKV_ASSIGN_OR_RETURN(ReadRingTransport server, builder.accept(listener, deadline));
//   // elsewhere
//   RKV_ASSIGN_OR_RETURN(ReadRingTransport client, builder.connect(address, deadline));
//
// The line: bytes 0-3 the freed position, 4-7 the number of freed records, 8-15 a hash of both,
// which detects a READ that overlapped a store. The rest is zero. Little-endian.
//
// Invariants and thread safety: ring_transport.h.
#pragma once

#include <optional>

#include "rkv/rdma/message/message_driver.h"
#include "rkv/rdma/message/ring_transport.h"

namespace rkv::rdma {

class RKV_EXPORT ReadRingTransport : public RingTransport {
 private:
  friend struct ReadRingBuilder;
  using RingTransport::RingTransport;
};
static_assert(MessageTransport<ReadRingTransport>);

struct RKV_EXPORT ReadRingBuilder {
  using Transport = ReadRingTransport;
  using Listener = CmListener;

  RingOptions options;
  std::optional<MessageDriver> driver = {};  // else each transport has queues of its own

  Result<CmListener> listen(const SocketAddress& local) const { return CmListener::listen(local); }
  // kInvalidArgument names the option and its range; kUnsupported: one of the two sides does not
  // grant READs to the other.
  // connect() waits for the server: it has no steps and no coroutine. A thread that must not wait
  // lets another one connect, without this driver.
  Result<Transport> connect(const SocketAddress& peer, const Deadline& deadline) const;
  // Both wait for the peer: a client that does not finish its handshake, or does not send the key
  // of its ring, keeps accept() until the deadline. start_accept() answers a request of
  // CmListener::next() and does not wait.
  Result<Transport> accept(CmListener& listener, const Deadline& deadline) const;
  Result<AcceptingTransport<Transport>> start_accept(ConnectRequest request) const;
};
static_assert(TransportBuilder<ReadRingBuilder>);

}  // namespace rkv::rdma
