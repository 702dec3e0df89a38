// Requests in flight on one connection: credits, sequences, send buffers, and the matching of
// answers to requests.
//
// Invariants:
//  REQ-1  The number of unanswered requests never exceeds the credits that the server granted.
//  REQ-2  A buffer is reused only when its send has completed AND its answer has come, or when the
//      connection is closed (reset).
//  REQ-3  An answer is accepted only for a request that is waiting, with the same operation.
//      Anything else is an error of the peer and ends the connection.
//  REQ-4  A request longer than the limit of a SEND stays in its large buffer. A message with its
//      address is sent from the slot's small buffer. REQ-2 holds for both buffers, since the answer
//      comes after the server has READ the request.
//  REQ-5  An unanswered request has its own lane, among the first `credits` ones, and its sequence
//      is above all earlier ones (lane_of() in wire.h). So the server can report the outcome of
//      each request that was unanswered when the connection ended.
//
// Thread safety: none. Nothing allocates after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/link/arena.h"

namespace rkv::client {

class Requests {
 public:
  // At most `count` requests in flight, with the arena's request buffers 0 to count-1.
  Requests(Arena& arena, std::size_t count);

  // Starts a new connection. Forgets every request. REQUIRES: the old connection is closed.
  struct Limits {
    std::uint16_t credits = 0;
    std::uint32_t inline_bytes = 0;    // longest inline SEND
    std::uint32_t max_sent_bytes = 0;  // longest SEND (REQ-4)
  };
  void reset(const Limits& limits);

  std::size_t in_flight() const { return unanswered_; }
  // Until reset() no request is begun any more.
  void begin_none() { credits_ = 0; }
  bool has_credit() const { return unanswered_ < credits_; }
  std::size_t credits() const { return credits_; }

  // Takes a slot, encodes the request with its sequence number, and returns the operation to post.
  // nullopt: all credits, slots or large buffers are in use; poll, then try again. The bytes of key
  // and value are copied. answered() returns `tag`.
  std::optional<rdma::Operation> begin(Request request, std::uint64_t tag);
  // The sequence of the request that was begun last. REQUIRES: it was not cancelled.
  std::uint64_t last_sequence() const { return last_sequence_; }
  // Undoes the last begin(): its operation could not be posted.
  void cancel(const rdma::Operation& operation);

  // Records that a send completed, with the context of its operation.
  void sent(std::uint64_t context);
  // Ends the request that the response answers and returns its tag. nullopt: no request matches
  // (REQ-3).
  std::optional<std::uint64_t> answered(const Response& response);

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
  std::uint64_t take_lane();
  void release_if_over(Entry& entry);
  MutableBytes place_of(MutableBytes message, std::uint64_t sequence, std::size_t index) const;

  Arena* arena_;
  std::vector<Entry> entries_;
  std::size_t credits_ = 0;
  std::size_t unanswered_ = 0;
  Limits limits_;
  std::uint64_t last_sequence_ = 0;
  std::uint32_t free_lanes_ = 0;  // a bit for each free lane
};

}  // namespace rkv::client
