// LaneListener: of a primary: offers lanes to backups, and gives those that they make of it.
//
//   LaneListener lanes(io, transports, "192.0.2.1", [&](peer, lane) { ... });
//   if (const auto offer = lanes.offer(peer)) ...   // goes to that peer; its lane may come later
//
// Of each transport a thread of its own takes requests, since that blocks. A request without a
// token that was offered is refused, and leaves nothing. The threads start with the first offer; if
// they cannot, nothing is offered.
//
// Thread safety: the thread of the io_context, which must outlive the listener, as must the
// transports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/replication/lane/lane_transports.h"
#include "server/replication/lane/replica_lane.h"
#include "server/replication/messages.h"

namespace rkv::server {

class LaneListener {
 public:
  // At most this many offers wait; one more ends the oldest.
  static constexpr std::size_t kMaxOffers = 64;
  using Given = std::function<void(std::uint64_t peer, std::unique_ptr<ReplicaLane> lane)>;

  // `host`: where other replicas can connect. `given` is called on the io_context's thread.
  LaneListener(asio::io_context& io, const LaneTransports& transports, const std::string& host,
               Given given);
  ~LaneListener();  // blocks until the threads have ended: for some seconds at most
  LaneListener(const LaneListener&) = delete;
  LaneListener& operator=(const LaneListener&) = delete;

  // Nothing: no transport listens, or one has not tried yet. A new offer for a peer ends its
  // earlier one.
  std::optional<LaneOffer> offer(std::uint64_t peer);
  // The peer's offer ends. A lane of it may still be given.
  void forget(std::uint64_t peer);

 private:
  class Impl;  // lives until its last handler has run
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
