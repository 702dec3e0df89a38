// ReplicaLane: the bytes that two replicas send each other, over a transport of the store: RDMA, or
// shared memory on one host.
//
//   auto parts = ReplicaLane::prepare(transport);    // any thread; then connect or accept
//   ReplicaLane lane(io, std::move(*parts), reaper);
//   lane.start({.on_bytes = ..., .on_end = ..., .on_room = ...});
//   const std::size_t taken = lane.send(bytes);      // the rest after on_room
//
// Bytes travel in frames, each a message of the transport: "credits 4 | length 4", little-endian,
// and the bytes. A frame with bytes costs its sender a credit. The sender has kFrames credits at
// first. `credits` gives back those of the frames that the other end has taken. A frame without
// bytes costs none.
//
// Invariants:
//  LANE-1  Bytes arrive in the order of send(), each once, or the lane ends.
//  LANE-2  A receive waits for every frame that comes. At most kFrames frames with bytes are under
//      way. At most two frames without bytes are, since each gives back half of all credits.
//  LANE-3  on_end is called exactly once, and no other callback follows it. None is called from
//      within a call of this class but drain(), nor once the destructor has begun.
//  LANE-4  A peer's frame is refused, and ends the lane, if its length is not that of the message
//      or it gives back credits of frames that were not posted.
//  LANE-5  The other end's on_bytes has got at least taken_bytes() of the bytes that send() took.
//      The rest is in kFrames frames at most.
//
// Thread safety: the thread of the io_context, which must outlive the lane. Nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/bytes.h"
#include "rkv/result.h"
#include "server/group/lane/lane_parts.h"
#include "server/group/lane/lane_reaper.h"

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
    // `bytes` are valid during the call.
    std::function<void(Bytes bytes)> on_bytes;
    // All that had arrived was given to on_bytes: several frames, if several had arrived.
    std::function<void()> on_delivered;
    std::function<void(std::string why)> on_end;
    // send() may take more than it last did.
    std::function<void()> on_room;
  };

  // Makes all parts except the connection. Blocks while memory is registered, about 2 MiB.
  static Result<LaneParts> prepare(rdma::Transport& transport);
  static rdma::ConnectionOptions connection_options();

  // REQUIRES: parts.connection is made with connection_options() on parts.queue.
  // `reaper` destroys the parts in the end.
  ReplicaLane(asio::io_context& io, LaneParts parts, std::shared_ptr<LaneReaper> reaper);
  ~ReplicaLane();
  ReplicaLane(const ReplicaLane&) = delete;
  ReplicaLane& operator=(const ReplicaLane&) = delete;

  // From now on the lane sends, and notices its end. Arriving bytes are held. REQUIRES: called
  // once.
  void start(Callbacks callbacks);
  // Delivers the held bytes, and all that arrive from now on.
  void receive();
  // Delivers now all that has arrived. REQUIRES: called from a handler, after receive().
  void drain();
  // Copies as many of the bytes as there is room for, and returns how many. They are posted by
  // flush() at the latest. After the lane's end nothing is taken. REQUIRES: started.
  std::size_t send(Bytes bytes);
  void flush();
  // How many bytes of send() the other end has certainly taken (LANE-5).
  std::uint64_t taken_bytes() const;
  const std::string& over() const;

 private:
  class Impl;  // lives until its last handler has run
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
