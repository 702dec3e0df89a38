// LaneCaller: used by a backup to make the lane that a primary has offered.
//
//   LaneCaller lanes(io, transports);
//   lanes.call("192.0.2.1", offer, [&](Result<std::unique_ptr<ReplicaLane>> made) { ... });
//
// A transport blocks while it connects, so a separate thread does that. It starts with the first
// call.
//
// Thread safety: the thread of the io_context, which must outlive the caller, as must the
// transports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/group/lane/lane_transports.h"
#include "server/group/lane/replica_lane.h"
#include "server/group/rules/messages.h"

namespace rkv::server {

class LaneCaller {
 public:
  // Time limit of an attempt over all transports: to register memory, find the route and connect. A
  // busy emulated machine takes seconds.
  static constexpr std::int64_t kConnectMs = 5000;

  // kUnsupported: this host has none of the offered transports. kBusy: no thread can be started.
  using Done = std::function<void(Result<std::unique_ptr<ReplicaLane>> made)>;

  LaneCaller(asio::io_context& io, const LaneTransports& transports);
  ~LaneCaller();  // blocks until an attempt has ended: kConnectMs at most
  LaneCaller(const LaneCaller&) = delete;
  LaneCaller& operator=(const LaneCaller&) = delete;

  // Calls `host`. If both transports are offered, shared memory is tried first: another host
  // refuses it at once. `done` is called once, later, on the io_context's thread. The `done` of an
  // earlier call is not called any more.
  void call(const std::string& host, const LaneOffer& offer, Done done);
  // After this, `done` is not called any more.
  void cancel();

 private:
  class Impl;  // lives until its last handler has run
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
