// A message transport over RDMA WRITE. Each side has a ring for incoming messages, and the peer
// writes each message there. The WRITE's immediate data is the doorbell: it announces the message,
// and consumes one of the reader's receives. Messages of all sizes share the ring.
//
// A sender must know which space of the peer's ring is free. So each message carries a report of
// the space that its sender has freed in its own ring. A side that has no message to send reports
// by a credit, a SEND of 8 bytes, when a quarter of its ring or of its slots is freed and not yet
// reported.
//
//   CreditRingBuilder builder{{.ring_bytes = 1 << 20}};
//   RKV_ASSIGN_OR_RETURN(CmListener listener, builder.listen(address));
//   RKV_ASSIGN_OR_RETURN(CreditRingTransport server, builder.accept(listener, deadline));
//   // elsewhere
//   RKV_ASSIGN_OR_RETURN(CreditRingTransport client, builder.connect(address, deadline));
//
// Invariants, besides those of transport.h; those of the arithmetic are in
// rdma/extras/message/ring.h:
//   RINGTRANS-1  The send queue holds everything that can be outstanding: `slots` WRITEs and eight
//       credits. A request beyond these limits waits for completions.
//   RINGTRANS-2  A receive is posted again when its doorbell is reaped, not when its message is
//       released. With slots + 8 receives, a peer that keeps to its slots and credits always finds
//       one.
//   RINGTRANS-3  Doorbells are only WRITEs with immediate data; credits are only SENDs of 8 bytes.
//       So neither is ever mistaken for the other, whatever it contains.
//   RINGTRANS-4  No value from the peer is used as an index or an address: it is compared with the
//       value that this side expects. A record's place follows from its length, which is checked
//       (RING-4).
//   RINGTRANS-5  The peer may write only into the ring, and only until the transport is
//       disconnected or destroyed. So it can change messages that it sent and that are still held,
//       and no other memory. Its key is that of a memory window for this connection only, or of a
//       registration in a protection domain with this connection only. disconnect() ends either, by
//       a system call.
//
// Thread safety: one thread at a time. Source: ibv_post_send(3), InfiniBand specification 9.5 (the
// order of requests on one queue pair).
#pragma once

#include <cstdint>
#include <memory>

#include "rkv/export.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/lease.h"
#include "rkv/rdma/message/accepting.h"
#include "rkv/rdma/message/transport_of.h"

namespace rkv::rdma {

// For each number the smaller value of both sides applies. `sequenced` applies if either side sets
// it. `access` applies to this side's ring.
struct RingOptions {
  std::uint32_t ring_bytes = 1U << 18;  // for incoming messages; a power of two, 4 Ki to 1 Gi
  std::uint32_t slots = 128;            // messages that may be held; a power of two, 1 to 8192
  // Longest message. 0 or too large: ring_bytes / 4 - 8, at most 16777207.
  std::uint32_t message_bytes = 0;
  bool sequenced = false;  // force the doorbells for large rings; otherwise used only if needed
  // The kind of key that the peer gets for this side's ring. kAuto uses a window if the device
  // confines peers to their windows (SoftRoCE does not), else a registration. A window's key is
  // sent to the peer in a separate message after the handshake, and the peer waits for it.
  // kRequireWindows: kUnsupported if there are none; SoftRoCE has windows for trusted peers only:
  // see rdma/README.md.
  LeasePolicy access = LeasePolicy::kAuto;
};

namespace detail {
class RingState;
}
extern template class RKV_EXPORT TransportOf<detail::RingState>;

class RKV_EXPORT CreditRingTransport : public TransportOf<detail::RingState> {
 public:
  struct Counters {
    std::uint64_t credits_sent = 0;  // messages that only reported free space
  };
  const Counters& counters() const;
  bool uses_window() const;  // for this side's ring; the peer may choose otherwise
  const QueuePair& queue_pair() const;

 private:
  friend struct CreditRingBuilder;
  friend class AcceptingTransport<CreditRingTransport>;
  Result<bool> try_finish();
  explicit CreditRingTransport(std::unique_ptr<detail::RingState> state);
};
static_assert(MessageTransport<CreditRingTransport>);

struct RKV_EXPORT CreditRingBuilder {
  using Transport = CreditRingTransport;
  using Listener = CmListener;

  RingOptions options;

  Result<CmListener> listen(const SocketAddress& local) const { return CmListener::listen(local); }
  // kInvalidArgument names the option and its range.
  // connect() waits for the server: it has no steps and no coroutine. A thread that must not wait
  // lets another one connect.
  Result<Transport> connect(const SocketAddress& peer, const Deadline& deadline) const;
  // Both wait for the peer: a client that does not finish its handshake, or does not send the key
  // of its ring, keeps accept() until the deadline. start_accept() answers a request of
  // CmListener::next() and does not wait.
  Result<Transport> accept(CmListener& listener, const Deadline& deadline) const;
  Result<AcceptingTransport<Transport>> start_accept(ConnectRequest request) const;
};
static_assert(TransportBuilder<CreditRingBuilder>);

}  // namespace rkv::rdma
