// LargePutReceiver: large values that are READ in pieces from clients' memory into the store.
//
// A put-large request says where the value lies in the client's memory. The worker READs the value
// into a block of the store that nothing refers to yet, a few pieces at a time. Between the pieces
// it serves its other clients.
//
// Invariants:
//  PUTLARGE-1  A block is published or given back only when no READ into it is under way: each READ
//      has completed, or its connection was destroyed.
//  PUTLARGE-2  At most kPerSession fetches of a client, and kPieces READs of each fetch, are under
//      way. A client's further put-large requests wait in their receive buffers.
//  PUTLARGE-3  Each piece is hashed once, after it has arrived, in the order of the value. The
//      hashed bytes are the published bytes. Later changes of the client's memory have no effect.
//  PUTLARGE-4  A fetch of a client that is ending is never published.
//  PUTLARGE-5  A client whose memory does not answer, or answers slowly, or that takes no replies,
//      cannot block others. It keeps neither a fetch here nor the room of LARGE-3 from them, nor a
//      server from ending its part. When one of these waits, a client with a fetch is disconnected
//      in two cases. No piece of its values has arrived for kLongestRead; or its value has fallen
//      behind kLeastPace, counted from kLongestRead after the fetch began. A value that only waits
//      for the server's disk does not count.
//
// Thread safety: one owner, the worker.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/hash.h"
#include "server/request/request_handler.h"
#include "server/request/session.h"

namespace rkv::server {

struct Fetch {
  Session* session = nullptr;  // nullptr: this entry is free
  Bytes message{};             // the request, in its receive buffer
  std::uint32_t receive_buffer = 0;
  ValueSource source{};
  LargePut large{};
  std::optional<Xxh3Stream> hash{};
  std::size_t posted = 0;   // bytes of the value whose READs were posted
  std::size_t landed = 0;   // bytes that have arrived and are hashed
  std::uint32_t reads = 0;  // READs under way
  bool failed = false;
  Nanos began_at = 0;
  Nanos heard_at = 0;  // when a piece of any value of the client arrived last, or the fetch began
  bool awaits_disk = false;  // the value has arrived, and the queue to the disk is full
  Nanos taken = 0;           // when the request was taken from the receive queue

  bool complete() const { return !failed && landed == source.length; }
};

class LargePutReceiver {
 public:
  static constexpr std::uint32_t kPerSession = 2;
  // READs of one fetch under way at a time: the next piece travels while one is hashed.
  static constexpr std::uint32_t kPieces = 2;
  // Bounds the time a worker spends on one client at a stretch: it copies and hashes 256 KiB in
  // about 50 us. A link of 100 Gbit/s takes 20 us for them, so two pieces cover a round trip.
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
  static constexpr std::uint32_t kReadsPerSession = kPerSession * kPieces;
  // Longer than a device retransmits after losses.
  static constexpr Nanos kLongestRead = 5000 * kNanosPerMs;
  // Bytes a second. At this pace all fetches of a worker together need 134 Mbit/s.
  static constexpr std::size_t kLeastPace = std::size_t{1} << 20;

  // `capacity`: fetches of all clients at a time.
  LargePutReceiver(RequestHandler& handler, std::size_t capacity);

  bool has_room(const Session& session) const {
    return session.fetches < kPerSession && free_ != 0;
  }
  bool has_free() const { return free_ != 0; }
  bool is_idle() const { return free_ == all_.size(); }
  // Starts to fetch the value of a request that was taken at `taken`. The receive buffer stays in
  // use until the fetch has ended. Returns false if the connection accepts no READ. The caller then
  // drops the client, and drop_all() ends the fetch. REQUIRES: has_room().
  bool begin(Session& session, Bytes message, std::uint32_t receive_buffer,
             RequestHandler::FetchValue value, Nanos taken, Nanos now);
  // Handles the completion of a READ with this context. Returns the fetch if it is complete or
  // failed and none of its READs is under way any more. The caller then calls finish() or drop().
  // Otherwise returns nullptr.
  Fetch* on_read(std::uint64_t context, bool arrived, Nanos now);
  // Returns the client to disconnect by PUTLARGE-5; nullptr: there is none, or another client's
  // fetch is about to end.
  Session* overdue(Nanos now) const;
  // Publishes the value and returns the answer to send. nullopt: the queue to the disk is full now,
  // and the write's deadline has not passed. REQUIRES: complete().
  std::optional<RequestHandler::Answer> finish(Fetch& fetch);
  // Ends the fetch and gives its block back. REQUIRES: no READ of it can still arrive (PUTLARGE-1).
  void drop(Fetch& fetch);
  // Drops all fetches of a session whose connection was destroyed (PUTLARGE-1); nullptr: of all
  // sessions. Calls `released(receive_buffer)` for each.
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
