// Fetches: large values on their way from clients' memory to the store, in pieces.
//
// A request to put a large value says where the value is in the client's memory. The worker READs
// it into a block of the store's that leads to nothing yet, a few pieces at a time, and goes on
// serving everybody else between them.
//
// Invariants:
//  F1  A block is published or given back only when no READ into it is under way: each has been
//      reported, or its connection destroyed.
//  F2  At most kPerSession fetches of a client and kPieces READs of each are under way; clients'
//      further requests of this kind wait in their receive buffers.
//  F3  Pieces are hashed in the order of the value, each once, after it has arrived; what is hashed
//      is what is published. What the client does to its memory afterwards changes nothing.
//  F4  A fetch of a client that is ending is never published.
//
// Thread safety: one owner, the worker.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/hash.h"
#include "server/request_handler.h"
#include "server/session.h"

namespace rkv::server {

struct Fetch {
  Session* session = nullptr;  // nullptr: free
  Bytes message{};             // the request, in its receive buffer
  std::uint32_t receive_buffer = 0;
  ValueSource source{};
  LargePut large{};
  std::optional<Xxh3Stream> hash{};
  std::size_t posted = 0;  // bytes of the value that were asked for
  std::size_t landed = 0;  // that have arrived and are hashed
  std::uint32_t reads = 0;
  bool failed = false;
  Nanos taken = 0;  // when the request was

  bool complete() const { return !failed && landed == source.length; }
};

class Fetches {
 public:
  static constexpr std::uint32_t kPerSession = 2;
  // Of one fetch, under way at a time: enough for the next to travel while one is hashed.
  static constexpr std::uint32_t kPieces = 2;
  // What a worker does at a stretch for one client: 256 KiB are copied and hashed in some 50 us. 20
  // us on a link of 100 Gbit/s, so that two of them cover a round trip.
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
  static constexpr std::uint32_t kReadsPerSession = kPerSession * kPieces;

  // `capacity`: fetches at a time, of all clients.
  Fetches(RequestHandler& handler, std::size_t capacity);

  bool has_room(const Session& session) const {
    return session.fetches < kPerSession && free_ != 0;
  }
  // REQUIRES has_room(). `taken`: when the request was. The receive buffer stays the request's
  // until the fetch has ended. False: the connection takes no READ; the fetch has ended (see
  // ended()).
  bool begin(Session& session, Bytes message, std::uint32_t receive_buffer,
             RequestHandler::Answer answer, Nanos taken);
  // A READ with this context was completed. The fetch, if nothing of it is under way any more:
  // finish() or drop() it.
  Fetch* on_read(std::uint64_t context, bool arrived);
  // The value is there: publishes it. The answer to send.
  RequestHandler::Answer finish(Fetch& fetch);
  void drop(Fetch& fetch);
  // Of a session whose connection is gone (F1): calls `released(receive_buffer)` for each.
  template <class Released>
  void drop_all(const Session* session, Released released) {
    for (Fetch& fetch : all_) {
      if (fetch.session == nullptr || (session != nullptr && fetch.session != session)) continue;
      released(fetch.receive_buffer);
      drop(fetch);
    }
  }

 private:
  bool post(Fetch& fetch);
  void clear(Fetch& fetch);

  RequestHandler& handler_;
  std::vector<Fetch> all_;
  std::size_t free_;
};

}  // namespace rkv::server
