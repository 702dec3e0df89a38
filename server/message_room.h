// What one worker takes for messages, and for each client of its: the numbers, and why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/transport.h"
#include "server/fetches.h"

namespace rkv::server {

// Requests that a client may have unanswered.
inline constexpr std::uint16_t kMaxCredits = 4;
// Replies in flight a connection: the credits' worth that is unanswered, and as much again three
// times over whose acknowledgement by the peer's device is late. More would only tie up buffers:
// K3 makes requests wait instead.
inline constexpr std::uint32_t kRepliesInFlight = 4 * kMaxCredits;
// Of these, replies that lie in a small send buffer, and in a large one (K8): those that do are not
// copied by the post, but wait until the peer's device has taken them.
inline constexpr std::uint32_t kSmallRepliesPerClient = 2 * kMaxCredits;
inline constexpr std::uint32_t kLargeRepliesPerClient = kMaxCredits;
// Operations of one connection that its queue has room for (K4, O3). SoftRoCE takes half a KiB for
// each, and as many as make a power of two with the one that marks the end and an empty place.
inline constexpr std::uint32_t kOperationsInFlight =
    kRepliesInFlight + Fetches::kReadsPerSession + kMaxCredits;
static_assert(kOperationsInFlight + 2 <= 32, "16 KiB a client, not 32");

struct MessageRoom {
  std::uint32_t receives = 0;  // receive buffers
  // Of each: the longest request that a client may SEND. Longer ones are READ (LongRequests).
  std::uint32_t receive_bytes = 0;
  std::uint32_t small_replies = 0;  // SendPool
  std::uint32_t large_replies = 0;
  std::uint32_t long_requests = 0;  // under way at a time

  static MessageRoom of(const rdma::Transport& transport, std::uint32_t clients);

  // Of all these buffers: registered, where the transport does that.
  std::size_t bytes() const;
};

}  // namespace rkv::server
