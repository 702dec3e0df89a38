#include "server/message_room.h"

#include <algorithm>

#include "common/wire.h"
#include "server/send_pool.h"

namespace rkv::server {

namespace {

// A client is to cost no more than 64 KiB. Its credits must never find the shared receive queue
// empty, so that each takes a buffer of its own, registered and therefore in memory, used or not:
// four of these, 20 KiB. Two small send buffers a credit make it 22. On SoftRoCE 20 KiB come to it
// for the send queue and 3 for places in the completion and the receive queue; what is
// measured in all is some 55, with the session's and librdmacm's own. A value of 4 KiB arrives with
// the longest key in one round trip; of longer ones the second is little beside their bytes.
constexpr std::uint32_t kSentBytes = round_up(kRequestHeaderBytes + kMaxKeyBytes + 4096, 64);
// Where buffers cost nothing before they are used, requests of any length are SENT.
constexpr std::uint32_t kAnyRequest = kMaxMessageBytes;
// Receive buffers beyond clients x credits: for what is on its way from clients that are being
// disconnected.
constexpr std::uint32_t kSpareReceives = 16;
// A worker always has a small buffer for a client that has not used up its own, and some to spare.
constexpr std::uint32_t kSpareReplies = 64;
// Replies of 257 bytes to 128 KiB on their way at a time, and requests longer than kSentBytes: 2
// and 1 MiB a worker, whatever the number of clients. Where buffers cost nothing before they are
// used, there are replies enough for all clients. Of those requests the worker sets the pace: 8
// of 128 KiB take a link of 100 Gbit/s some 80 us, several round trips.
constexpr std::uint32_t kLargeReplies = 16;
constexpr std::uint32_t kLongRequests = 8;

}  // namespace

MessageRoom MessageRoom::of(const rdma::Transport& transport, std::uint32_t clients) {
  const bool pinned = transport.pins_receive_buffers();
  const std::uint32_t credits = clients * kMaxCredits;
  return {.receives = credits + kSpareReceives,
          .receive_bytes = pinned ? kSentBytes : kAnyRequest,
          .small_replies = clients * kSmallRepliesPerClient + kSpareReplies,
          .large_replies = pinned ? kLargeReplies : clients * kLargeRepliesPerClient,
          .long_requests = pinned ? std::min(kLongRequests, credits) : 0};
}

std::size_t MessageRoom::bytes() const {
  return std::size_t{receives} * receive_bytes +
         std::size_t{small_replies} * SendPool::kSmallBytes +
         std::size_t{large_replies + long_requests} * kMaxMessageBytes;
}

}  // namespace rkv::server
