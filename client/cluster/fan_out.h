// Runs several flows at once from one thread, each on its own engine.
//
// Invariants:
//  FAN-1  A round advances every flow whose engine is usable. The thread sleeps only when no flow
//      had anything to do, and it sleeps on the queues of all flows.
//  FAN-2  A lost flow is one whose connection was lost. It is reconnected when all connected flows
//      have ended, or have had half of the time. An attempt blocks the thread: while there are
//      connected flows, attempts take about a quarter of it. Lost flows take turns, each with a
//      part of the time that is left. So a host that swallows packets does not keep a restarted
//      server from being reconnected.
//  FAN-3  All flows have ended by the deadline.
//
// Thread safety: none; one thread.
#pragma once

#include <array>
#include <span>

#include "client/engine/pipeline.h"
#include "rkv/shard_map.h"

namespace rkv::client {

class FanOut {
 public:
  // At most ShardMap::kMaxServers flows, of different engines with one clock.
  FanOut(std::span<Pipeline* const> flows, const Deadline& deadline);
  // Runs all flows to their end.
  void run();

 private:
  struct Part {
    Pipeline* flow = nullptr;
    bool mending = false;
    Error last{};  // error of the last attempt to reconnect
  };
  static bool is_well(const Part& part) { return part.flow->engine().session.usable(); }
  bool any_well() const;
  bool advance();
  void look_after_lost();
  void sleep();
  bool mend_one();
  Deadline turn() const;

  const Deadline& deadline_;
  const Clock& clock_;
  Nanos mend_from_;  // no attempt before this time while there are connected flows
  std::array<Part, ShardMap::kMaxServers> parts_;
  std::size_t count_ = 0;  // number of flows that are not over
};

}  // namespace rkv::client
