// Several flows at once, each on an engine of its own, from one thread.
//
// Invariants:
//  O1  A round advances every flow whose engine is usable; the thread sleeps only when none of them
//      had anything to do, and on the queues of all of them.
//  O2  A flow whose connection was lost is mended behind the others: when all that are well have
//      ended, or have had half of the time. An attempt blocks the thread: beside flows that are
//      well attempts take about a quarter of it from then on. Attempts of several take turns,
//      each with its part of the time that is left, so that one whose host swallows packets does
//      not keep one that only restarted from coming back.
//  O3  All flows have ended by the deadline.
//
// Thread safety: none; one thread.
#pragma once

#include <array>
#include <span>

#include "client/flow.h"
#include "rkv/shard_map.h"

namespace rkv::client {

class FanOut {
 public:
  // At most ShardMap::kMaxServers flows, of different engines with one clock.
  FanOut(std::span<Flow* const> flows, const Deadline& deadline);
  // To the end of all.
  void run();

 private:
  struct Part {
    Flow* flow = nullptr;
    bool mending = false;
    Error last{};  // why it could not be mended
  };
  static bool is_well(const Part& part) { return part.flow->engine().usable(); }
  bool any_well() const;
  bool advance();
  void look_after_lost();
  void sleep();
  bool mend_one();
  Deadline turn() const;

  const Deadline& deadline_;
  const Clock& clock_;
  Nanos mend_from_;  // beside flows that are well
  std::array<Part, ShardMap::kMaxServers> parts_;
  std::size_t count_ = 0;  // of those that are not over
};

}  // namespace rkv::client
