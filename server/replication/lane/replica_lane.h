// ReplicaLane: the bytes that two replicas send each other, over a transport of the store: RDMA, or
// shared memory on one host.
//
//   auto parts = ReplicaLane::prepare(transport);    // any thread; then connect or accept
//   ReplicaLane lane(io, std::move(*parts), reaper);
//   lane.start({.on_bytes = ..., .on_end = ..., .on_room = ...});
//   const std::size_t taken = lane.send(bytes);      // the rest after on_room
//
// Bytes travel in frames, each a message of the transport: "credits 4 | length 4", little-endian,
// and the bytes. A frame with bytes costs its sender a credit, of which it has kFrames at first;
// `credits` gives back those of the frames that the other end has taken. A frame without bytes
// costs none.
//
// Invariants:
//  LANE-1  Bytes arrive in the order of send(), each once; or the lane ends.
//  LANE-2  A receive waits for every frame that comes: of frames with bytes at most kFrames are
//      under way, and of those without at most two, since each gives back half of all credits.
//  LANE-3  on_end is called exactly once, and no other callback follows it. None is called from
//      within a call of this class but drain(), nor once the destructor has begun.
//  LANE-4  A peer's frame is refused, and ends the lane, if its length is not that of the message
//      or it gives back more credits than were spent.
//
// Thread safety: the thread of the io_context, which must outlive the lane. Nothing blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/bytes.h"
#include "rkv/result.h"
#include "server/replication/lane/lane_parts.h"
#include "server/replication/lane/lane_reaper.h"

namespace asio {
class io_context;
}

namespace rkv::server {

class ReplicaLane {
 public:
  static constexpr std::uint32_t kFrames = 64;
  static constexpr std::size_t kFrameBytes = std::size_t{16} << 10;  // with its head
  static constexpr std::size_t kHeadBytes = 8;

  struct Callbacks {
    // Valid during the call.
    std::function<void(Bytes bytes)> on_bytes;
    // What had arrived was given to on_bytes: some frames, if several had.
    std::function<void()> on_delivered;
    std::function<void(std::string why)> on_end;
    // send() may take more than it last did.
    std::function<void()> on_room;
  };

  // All but the connection. Blocks while memory is registered, about 2 MiB.
  static Result<LaneParts> prepare(rdma::Transport& transport);
  static rdma::ConnectionOptions connection_options();

  // REQUIRES: parts.connection is made with connection_options() on parts.queue.
  // `reaper` destroys the parts in the end.
  ReplicaLane(asio::io_context& io, LaneParts parts, std::shared_ptr<LaneReaper> reaper);
  ~ReplicaLane();
  ReplicaLane(const ReplicaLane&) = delete;
  ReplicaLane& operator=(const ReplicaLane&) = delete;

  // From now on it sends, and notices its end. What arrives is held. REQUIRES: called once.
  void start(Callbacks callbacks);
  // Delivers what arrives from now on, and what was held.
  void receive();
  // Delivers now all that has arrived. REQUIRES: called from a handler, receive() before.
  void drain();
  // Copies the bytes, as many as there is room for; returns how many. They are posted by flush() at
  // the latest. After the end nothing is taken. REQUIRES: started.
  std::size_t send(Bytes bytes);
  void flush();
  const std::string& over() const;

 private:
  class Impl;  // lives until its last handler has run
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
