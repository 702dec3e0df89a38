// LongRequests: requests too long for a receive buffer, READ from their clients' memory.
//
// Receive buffers are registered for every client's credits, used or not: a request of 128 KiB in
// one of them would take 516 KiB a client. So long requests lie in a few buffers that all clients
// of a worker share, and are READ into them when one is free: flow control is the server's.
//
// Invariants:
//  O1  A buffer serves another request only when the READ into it has been reported or its
//      connection destroyed, and the request that lay in it is over.
//  O2  A request is READ once, and looked at only after that: what the client does to its memory
//      afterwards changes nothing.
//  O3  No more READs of a client are under way than it has credits.
//  O4  What was READ is the request that was announced, of the same sequence, and neither a long
//  nor
//      a put-large: a request that has a buffer never waits for another one.
//  O5  Nobody keeps a buffer from others by memory that does not answer: a READ that has been under
//      way for kLongestRead ends its client when somebody waits for a buffer.
//
// Thread safety: one owner, the worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/wire.h"
#include "rdma/transport.h"
#include "server/session.h"

namespace rkv::server {

class LongRequests {
 public:
  // `buffers` of kMaxMessageBytes, perhaps none.
  static Result<LongRequests> create(rdma::Transport& transport, std::uint32_t buffers);

  // Longer than a device tries again after losses.
  static constexpr Nanos kLongestRead = 5000 * kNanosPerMs;

  // Buffers have numbers of their own kind beside the queue's receive buffers', and the READ into
  // one has its number as context.
  static bool is_one(std::uint64_t buffer) { return (buffer & kBit) != 0; }

  std::size_t count() const { return reads_.size(); }
  std::size_t free() const { return free_.size(); }

  // REQUIRES free(). False: the connection takes no READ; nothing has happened.
  bool begin(Session& session, const MessageSource& source, std::uint64_t sequence, Nanos now);
  // A READ was completed, with this context. The buffer, whose number is the context, stays taken
  // until it is given back. If it was a success: what it has brought, and whether that may be
  // served (O4).
  struct Arrived {
    Bytes message;
    bool as_announced = false;
    Nanos since = 0;  // when the READ was posted
  };
  Arrived on_read(std::uint64_t context);
  // Whose READ has been under way for too long, or nullptr (O5).
  Session* overdue(Nanos now) const;
  void give_back(std::uint32_t buffer);
  // Of a session whose connection is gone: READs that were never reported (O1).
  void drop_all(const Session& session);

 private:
  static constexpr std::uint32_t kBit = std::uint32_t{1} << 31;
  struct Read {
    Session* session = nullptr;  // while it is under way
    std::size_t length = 0;
    std::uint64_t sequence = 0;
    Nanos since = 0;
  };

  LongRequests() = default;
  MutableBytes buffer(std::size_t index) const {
    return region_->bytes().subspan(index * kMaxMessageBytes, kMaxMessageBytes);
  }

  std::unique_ptr<rdma::Region> region_;
  std::vector<Read> reads_;
  std::vector<std::uint32_t> free_;  // indices; reserved in full, so nothing allocates later
};

}  // namespace rkv::server
