// LaneListener: used by a primary to offer lanes to backups, and to accept those that they make.
//
//   LaneListener lanes(io, transports, "192.0.2.1", [&](peer, lane) { ... });
//   if (const auto offer = lanes.offer(peer)) ...   // goes to that peer; its lane may come later
//
// Each transport has a thread that takes requests, since that blocks. A request without an offered
// token is refused, and leaves nothing behind. The threads start with the first offer. If they
// cannot start, nothing is offered.
//
// Thread safety: the thread of the io_context, which must outlive the listener, as must the
// transports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/group/lane/lane_transports.h"
#include "server/group/lane/replica_lane.h"
#include "server/group/rules/messages.h"

namespace rkv::server {

class LaneListener {
 public:
  // At most this many offers wait; one more ends the oldest.
  static constexpr std::size_t kMaxOffers = 64;
  using Given = std::function<void(std::uint64_t peer, std::unique_ptr<ReplicaLane> lane)>;

  // `host`: the address at which other replicas can connect. `given` is called on the io_context's
  // thread.
  LaneListener(asio::io_context& io, const LaneTransports& transports, const std::string& host,
               Given given);
  ~LaneListener();  // blocks until the threads have ended: for some seconds at most
  LaneListener(const LaneListener&) = delete;
  LaneListener& operator=(const LaneListener&) = delete;

  // Makes an offer. nullopt: no transport listens, or one has not tried yet. A new offer for a peer
  // ends its earlier one.
  std::optional<LaneOffer> offer(std::uint64_t peer);
  // Ends the peer's offer. A lane that was made by it may still be given.
  void forget(std::uint64_t peer);

 private:
  class Impl;  // lives until its last handler has run
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
