#include "server/request/message_buffers.h"

#include <algorithm>

#include "common/pack.h"
#include "common/wire.h"
#include "server/request/send_pool.h"

namespace rkv::server {

namespace {

// A client may cost at most 64 KiB of memory. The clients' credits must never find the shared
// receive queue empty. So each credit needs its own receive buffer, registered and therefore
// resident even if unused:
//   20 KiB  4 receive buffers of kSentBytes
//    2 KiB  2 small send buffers per credit
//   20 KiB  the send queue, on SoftRoCE
//    3 KiB  entries of the completion queue and the receive queue, on SoftRoCE
// The measured total is about 55 KiB, including the session's and librdmacm's memory. kSentBytes
// fits a 4 KiB value with the longest key, which arrives in one round trip. For longer values the
// second round trip costs little compared with transferring their bytes.
constexpr std::uint32_t kSentBytes = round_up(kRequestHeaderBytes + kMaxKeyBytes + 4096, 64);
// Where unused buffers cost nothing, requests of any length are SENT.
constexpr std::uint32_t kAnyRequest = kMaxMessageBytes;
// Receive buffers beyond clients x credits, for messages on their way from clients that are being
// disconnected.
constexpr std::uint32_t kSpareReceives = 16;
// Small send buffers beyond the clients' own, so that a client below its limit always finds one.
constexpr std::uint32_t kSpareReplies = 64;
// Per worker, whatever the number of clients: replies of 257 bytes to 128 KiB in flight (2 MiB of
// buffers) and requests longer than kSentBytes being READ (1 MiB). Where unused buffers cost
// nothing, all clients get their replies' full limit instead. The worker limits the rate of long
// requests: 8 of 128 KiB occupy a link of 100 Gbit/s for about 80 us, several round trips.
constexpr std::uint32_t kLargeReplies = 16;
constexpr std::uint32_t kLongRequests = 8;

// The results of this many writes fit into a small reply, and each client has its own small
// replies. A longer pack would need one of the few large replies.
constexpr std::uint16_t kSmallPack = 8;
static_assert(kResponseHeaderBytes + kSmallPack * kPackedResultBytes <= SendPool::kSmallBytes);

}  // namespace

MessageBuffers MessageBuffers::of(const rdma::Transport& transport, std::uint32_t clients) {
  const bool pinned = transport.pins_receive_buffers();
  const std::uint32_t credits = clients * kMaxCredits;
  // Over TCP a message holds its buffer from its first part on, but is not a request, and takes no
  // credit, before its last part. The peer decides how long that lasts. Each connection has one
  // such message at most. (Over verbs a device that stops in the middle of a message fails soon.)
  const std::uint32_t begun = pinned ? 0 : clients;
  return {.receives = credits + begun + kSpareReceives,
          .receive_bytes = pinned ? kSentBytes : kAnyRequest,
          .small_replies = clients * kSmallRepliesPerClient + kSpareReplies,
          .large_replies = pinned ? kLargeReplies : clients * kLargeRepliesPerClient,
          .long_requests = pinned ? std::min(kLongRequests, credits) : 0,
          .max_packed = pinned ? kSmallPack : std::uint16_t{kMaxPacked}};
}

std::size_t MessageBuffers::bytes() const {
  return std::size_t{receives} * receive_bytes +
         std::size_t{small_replies} * SendPool::kSmallBytes +
         std::size_t{large_replies + long_requests} * kMaxMessageBytes;
}

}  // namespace rkv::server
