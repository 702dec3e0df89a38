// Requests in flight on one connection: credits, sequences, send buffers, and which answer belongs
// to which request.
//
// Invariants:
//  R1  No more requests are unanswered than the server granted credits.
//  R2  A buffer is used again only when its send has completed AND its answer has come, or when
//      the connection is gone (reset).
//  R3  An answer is taken only for a request that is waiting, with the same operation; anything
//      else is the peer's error and ends the connection.
//  R4  A request longer than what may be SENT stays in its buffer, and a message that says where it
//      lies goes out of the slot's small one; R2 holds for both, since the answer to the request
//      comes after it has been READ.
//
// Thread safety: none. Nothing allocates after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/arena.h"

namespace rkv::client {

class Requests {
 public:
  // At most `count` in flight, with the arena's request buffers 0 to count-1.
  Requests(Arena& arena, std::size_t count);

  // A new connection. Forgets every request: REQUIRES that the old connection is closed.
  struct Limits {
    std::uint16_t credits = 0;
    std::uint32_t inline_bytes = 0;    // of a SEND
    std::uint32_t max_sent_bytes = 0;  // R4
  };
  void reset(const Limits& limits);

  std::size_t in_flight() const { return unanswered_; }
  bool has_credit() const { return unanswered_ < credits_; }

  // Takes a slot, encodes the request (its sequence is set here) and makes the operation to post.
  // Nothing without a credit, a free slot or a large buffer: poll, then try again. The bytes of
  // key and value are copied. `tag` comes back from answered().
  std::optional<rdma::Operation> begin(Request request, std::uint64_t tag);
  // The operation made last could not be posted: as if begin() had not been called.
  void cancel(const rdma::Operation& operation);

  // A send completed, with the context of its operation.
  void sent(std::uint64_t context);
  // The tag of the request that this answers, which is over; nothing when there is none (R3).
  std::optional<std::uint64_t> answered(const Response& response);

  static bool is_send(std::uint64_t context) { return (context & kSendBit) != 0; }

 private:
  static constexpr std::uint64_t kSendBit = std::uint64_t{1} << 63;
  struct Entry {
    std::uint64_t sequence = 0;  // 0 = answered
    std::uint64_t tag = 0;
    Opcode opcode = Opcode::kPing;
    bool sending = false;
    MutableBytes large;
    bool free() const { return sequence == 0 && !sending; }
  };
  void release_if_over(Entry& entry);
  MutableBytes place_of(MutableBytes message, std::uint64_t sequence, std::size_t index) const;

  Arena* arena_;
  std::vector<Entry> entries_;
  std::size_t credits_ = 0;
  std::size_t unanswered_ = 0;
  Limits limits_;
  std::uint64_t next_sequence_ = 1;
};

}  // namespace rkv::client
