// LongRequestReader: requests too long for a receive buffer, READ from their clients' memory.
//
// Receive buffers are registered for every credit of every client, used or not. Buffers for
// requests of 128 KiB would take 516 KiB per client. So all clients of a worker share a few long
// buffers. The worker READs a long request when one of them is free, so the server controls the
// flow.
//
// Invariants:
//  LONG-1  A buffer is reused only when the READ into it has completed or its connection was
//      destroyed, and the request that lay in it is over.
//  LONG-2  A request is READ once, and only inspected after that. Later changes of the client's
//      memory have no effect.
//  LONG-3  A client has at most as many READs under way as it has credits.
//  LONG-4  A request that has a buffer never waits for another buffer. The READ request must have
//      the announced sequence and must be neither a long request nor a put-large. Room for a small
//      answer to it is kept while it is READ and while it waits (Session::longs). If its answer
//      needs a large buffer and none is free, it is answered with kBusy. So it waits for turns
//      (SERVE-3) and for loads (SERVE-7) only.
//  LONG-5  A client whose memory does not answer cannot keep a buffer from others: if a request
//      waits for a buffer, or the server ends its part, a READ under way for kLongestRead or more
//      gets its client disconnected.
//
// Thread safety: one owner, the worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/wire.h"
#include "rdma/transport/transport.h"
#include "server/request/session.h"

namespace rkv::server {

class LongRequestReader {
 public:
  // Allocates `buffers` buffers of kMaxMessageBytes; 0 allocates nothing.
  static Result<LongRequestReader> create(rdma::Transport& transport, std::uint32_t buffers);

  // Longer than a device retransmits after losses.
  static constexpr Nanos kLongestRead = 5000 * kNanosPerMs;

  // Whether a buffer number or READ context belongs to a long buffer. Long buffers' numbers are
  // distinct from those of the queue's receive buffers. A READ's context is its buffer's number.
  static bool is_one(std::uint64_t buffer) { return (buffer & kBit) != 0; }

  std::size_t count() const { return reads_.size(); }
  std::size_t free() const { return free_.size(); }

  // Posts the READ of an announced request. Returns false if the connection accepts no READ; then
  // nothing has changed. REQUIRES: free() != 0, ReplySender::has_room().
  bool begin(Session& session, const MessageSource& source, std::uint64_t sequence, Nanos now);
  // Handles the completion of the READ with this context. The buffer with this number stays in use
  // until give_back(). The result is valid only if the READ succeeded: the request, and whether it
  // may be served (LONG-4).
  struct Arrived {
    Bytes message;
    bool as_announced = false;
    Nanos since = 0;  // when the READ was posted
  };
  Arrived on_read(std::uint64_t context);
  // Returns a client whose READ has been under way for kLongestRead or more, or nullptr (LONG-5).
  Session* overdue(Nanos now) const;
  void give_back(std::uint32_t buffer);
  // Frees the buffers of READs that never completed. REQUIRES: the session's connection was
  // destroyed (LONG-1).
  void drop_all(const Session& session);

 private:
  static constexpr std::uint32_t kBit = std::uint32_t{1} << 31;
  void free_buffer(std::uint32_t index);

  struct Read {
    Session* session = nullptr;  // nullptr: the buffer is free
    bool under_way = false;
    std::size_t length = 0;
    std::uint64_t sequence = 0;
    Nanos since = 0;
  };

  LongRequestReader() = default;
  MutableBytes buffer(std::size_t index) const {
    return region_->bytes().subspan(index * kMaxMessageBytes, kMaxMessageBytes);
  }

  std::unique_ptr<rdma::Region> region_;
  std::vector<Read> reads_;
  std::vector<std::uint32_t> free_;  // indices; reserved in full, so nothing allocates later
};

}  // namespace rkv::server
