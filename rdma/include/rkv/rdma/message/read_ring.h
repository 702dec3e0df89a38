// A ring whose reader only stores what it has freed into 64 bytes of its own memory; the writer
// READs them when it is short of room. For traffic one way, to a reader that shall post nothing; in
// return a writer that is ahead of the reader asks again and again, at growing intervals of up to a
// millisecond.
//
//   ReadRingBuilder builder{{.ring_bytes = 1 << 20, .slots = 1024}};
//   RKV_ASSIGN_OR_RETURN(CmListener listener, builder.listen(address));
//   RKV_ASSIGN_OR_RETURN(ReadRingTransport server, builder.accept(listener, deadline));
//   // elsewhere
//   RKV_ASSIGN_OR_RETURN(ReadRingTransport client, builder.connect(address, deadline));
//
// The line that is read: bytes 0-3 the position that is freed, 4-7 the number of records, 8-15 a
// hash of both, by which a READ that met the store is known. The rest is zero. Little-endian.
//
// Invariants and thread safety: ring_transport.h.
#pragma once

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

  Result<CmListener> listen(const SocketAddress& local) const { return CmListener::listen(local); }
  // kInvalidArgument names the option and its range; kUnsupported: one of the two sides grants no
  // READs to the other.
  Result<Transport> connect(const SocketAddress& peer, const Deadline& deadline) const;
  Result<Transport> accept(CmListener& listener, const Deadline& deadline) const;
};
static_assert(TransportBuilder<ReadRingBuilder>);

}  // namespace rkv::rdma
