// A client as its worker knows it. A value without behaviour; everything happens in Worker.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/transport.h"
#include "server/places.h"

namespace rkv::server {

struct Session {
  std::unique_ptr<rdma::Connection> connection;
  std::uint64_t id = 0;
  std::uint32_t credits = 0;  // requests the client may have unanswered
  std::string name;           // as the client calls itself: for log lines, not trusted
  std::shared_ptr<Place> place;

  std::uint32_t unanswered = 0;  // received, reply not yet posted; above credits: disconnected
  std::uint32_t in_flight = 0;   // replies posted whose completion is not known yet
  std::uint32_t unsignaled = 0;  // of those, posted behind the last signaled one
  std::uint32_t fetches = 0;     // large values of it on their way
  std::uint32_t small_held = 0;  // send buffers that its replies lie in
  std::uint32_t large_held = 0;
  Nanos large_since = 0;  // since when it has had one of these without taking any
  bool ending = false;           // aborted or disconnected: nothing is answered any more
  std::vector<rdma::Operation> replies;  // of this turn, not yet posted; never grows past
                                         // its first capacity

  // For log lines: its beginning. Who knows all of it can have the server end the connection, by
  // naming it as his last one (WIRE.md).
  std::string shown_id() const { return fmt::format("{:06x}", id >> 40); }
};

}  // namespace rkv::server
