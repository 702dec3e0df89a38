// LaneCaller: of a backup: makes the lane that a primary has offered.
//
//   LaneCaller lanes(io, transports);
//   lanes.call("192.0.2.1", offer, [&](Result<std::unique_ptr<ReplicaLane>> made) { ... });
//
// A transport blocks while it connects, so a thread of its own calls. It starts with the first
// call.
//
// Thread safety: the thread of the io_context, which must outlive the caller, as must the
// transports.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/replication/lane/lane_transports.h"
#include "server/replication/lane/replica_lane.h"
#include "server/replication/messages.h"

namespace rkv::server {

class LaneCaller {
 public:
  // kUnsupported: no transport here is among those offered. kBusy: no thread can be started.
  using Done = std::function<void(Result<std::unique_ptr<ReplicaLane>> made)>;

  LaneCaller(asio::io_context& io, const LaneTransports& transports);
  ~LaneCaller();  // blocks until an attempt has ended: for some seconds at most
  LaneCaller(const LaneCaller&) = delete;
  LaneCaller& operator=(const LaneCaller&) = delete;

  // Calls `host`: over shared memory if both are offered, which another host refuses at once.
  // `done` is called once, later, on the io_context's thread; of an earlier call no more.
  void call(const std::string& host, const LaneOffer& offer, Done done);
  // `done` is not called any more.
  void cancel();

 private:
  class Impl;  // lives until its last handler has run
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
