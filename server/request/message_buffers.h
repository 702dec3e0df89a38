// Message buffers per worker and per client: counts, sizes and why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/transport/transport.h"
#include "server/request/large_put_receiver.h"
#include "server/request/session.h"

namespace rkv::server {

// Replies in flight per connection: one per credit that is unanswered, and three more per credit
// whose acknowledgement by the peer's device is late. More would only tie up buffers; SERVE-3 makes
// requests wait instead.
inline constexpr std::uint32_t kRepliesInFlight = 4 * kMaxCredits;
// How many of these replies may occupy a small and a large send buffer (SERVE-8). The post does not
// copy these replies; their buffers stay in use until the peer's device has acknowledged them.
inline constexpr std::uint32_t kSmallRepliesPerClient = 2 * kMaxCredits;
inline constexpr std::uint32_t kLargeRepliesPerClient = kMaxCredits;
// The operations that a connection's send queue holds (SERVE-4, LONG-3). SoftRoCE needs 512 bytes
// for each. It rounds their count up to a power of two, counting the end marker, a probe and an
// empty place too.
inline constexpr std::uint32_t kOperationsInFlight =
    kRepliesInFlight + LargePutReceiver::kReadsPerSession + kMaxCredits;
static_assert(kOperationsInFlight + 3 <= 32, "16 KiB a client, not 32");

struct MessageBuffers {
  std::uint32_t receives = 0;  // receive buffers
  // Bytes per receive buffer: the longest request that a client may SEND. Longer requests are READ
  // (LongRequestReader).
  std::uint32_t receive_bytes = 0;
  std::uint32_t small_replies = 0;  // small and large buffers of the SendPool
  std::uint32_t large_replies = 0;
  std::uint32_t long_requests = 0;  // buffers for long requests: READs under way at a time
  std::uint16_t max_packed = 0;     // operations in a pack

  // The counts and sizes for one worker of `clients` clients.
  static MessageBuffers of(const rdma::Transport& transport, std::uint32_t clients);

  // The bytes of all these buffers together. They are registered if the transport registers memory.
  std::size_t bytes() const;
};

}  // namespace rkv::server
