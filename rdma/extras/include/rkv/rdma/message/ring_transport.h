// Message transports over rings: a message is a WRITE with immediate data into a ring in the peer's
// memory. There is no buffer per message, so small and large messages share the same memory. The
// two kinds differ in how the reader reports free space: see credit_ring.h and read_ring.h, which
// have the examples and builders.
//
// Invariants, besides those of transport.h; those of the arithmetic are in
// rdma/extras/message/ring.h:
//   RINGTRANS-1  The send queue holds everything that can be outstanding: `slots` WRITEs, and eight
//       credits or one READ. A request beyond these limits waits for completions.
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

#include <memory>

#include "rkv/export.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/lease.h"
#include "rkv/rdma/message/accepting.h"
#include "rkv/rdma/message/transport_of.h"

namespace rkv::rdma {

// Of each number the smaller value of both sides applies. `sequenced` applies if either side sets
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

class RKV_EXPORT RingTransport : public TransportOf<detail::RingState> {
 public:
  struct Counters {
    std::uint64_t credits_sent = 0;   // messages that only reported free space
    std::uint64_t heads_read = 0;     // READs of the peer's head
    std::uint64_t heads_torn = 0;     // READs that overlapped a store and were repeated
    std::uint64_t times_refused = 0;  // sends without space
  };
  const Counters& counters() const;
  bool uses_window() const;  // for this side's ring; the peer may choose otherwise
  const QueuePair& queue_pair() const;

 protected:
  explicit RingTransport(std::unique_ptr<detail::RingState> state);

 private:
  template <class T>
  friend class AcceptingTransport;
  Result<bool> try_finish();
};

}  // namespace rkv::rdma
