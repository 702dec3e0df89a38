// A message is a WRITE with immediate data into a ring of the peer's: no buffer per message, so
// that small and large ones share the same memory. How the peer's progress comes back is what the
// two kinds differ in: see credit_ring.h and read_ring.h, which have the examples and builders.
//
// Invariants, besides those of transport.h; those of the arithmetic are in rdma/message/ring.h:
//   G1. The send queue is made for what can be outstanding: `slots` WRITEs, and eight credits or
//       one READ. Whoever would pass that number waits for completions.
//   G2. A receive is posted again as soon as its doorbell is reaped, not when its message is
//       released. With slots + 8 of them the peer, who keeps to its slots and credits, never finds
//       none.
//   G3. Doorbells are WRITEs with immediate data and nothing else; credits are SENDs of 8 bytes
//       and nothing else. Neither is ever taken for the other, whatever their contents.
//   G4. Nothing that the peer says is an index or an address: it is compared with what we know
//       must be. A record's place follows from its length, which is checked (R4).
//   G5. The peer may write into the ring alone, until the transport is disconnected or destroyed.
//       So it can change a message that we hold, its own; nobody else's memory. Its key is that of
//       a memory window, good for this connection only; or of a registration in a protection domain
//       that has this connection only. Either ends with disconnect(), by a call of the kernel.
//
// Thread safety: one thread at a time. Source: ibv_post_send(3), InfiniBand specification 9.5 (the
// order of requests on one queue pair).
#pragma once

#include <memory>

#include "rkv/export.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/lease.h"
#include "rkv/rdma/message/transport_of.h"

namespace rkv::rdma {

// Of both sides the smaller of each is used.
struct RingOptions {
  std::uint32_t ring_bytes = 1U << 18;  // for messages to us; a power of two, 4 Ki to 1 Gi
  std::uint32_t slots = 128;            // messages that may be held; a power of two, 1 to 8192
  // Longest message; 0, or above it: ring_bytes / 4 - 8, and 16777207 at most.
  std::uint32_t message_bytes = 0;
  bool sequenced = false;  // doorbells of the form for large rings, which is chosen where needed
  // What the peer's key to our ring is: kAuto takes a window where the device keeps peers inside
  // them (not so SoftRoCE), else a registration. A window's key is told by a message of its own
  // after the handshake, which the peer waits for. kRequireWindows: kUnsupported where there are
  // none; SoftRoCE has them for peers that are trusted: see rdma/README.md.
  LeasePolicy access = LeasePolicy::kAuto;
};

namespace detail {
class RingState;
}
extern template class RKV_EXPORT TransportOf<detail::RingState>;

class RKV_EXPORT RingTransport : public TransportOf<detail::RingState> {
 public:
  struct Counters {
    std::uint64_t credits_sent = 0;   // messages that told nothing but what is free
    std::uint64_t heads_read = 0;     // READs of the peer's head
    std::uint64_t heads_torn = 0;     // that met a store, and were done again
    std::uint64_t times_refused = 0;  // sends without room
  };
  const Counters& counters() const;
  bool uses_window() const;  // for our ring; the peer may do otherwise
  const QueuePair& queue_pair() const;

 protected:
  explicit RingTransport(std::unique_ptr<detail::RingState> state);
};

}  // namespace rkv::rdma
