// Fitness: whether a replica could serve clients as the primary of its group, or does so. A primary
// that does not gives way to a backup that could; a backup that could not does not join, and does
// not take over. The disk is the replicator's own matter.
//
//   Fitness fitness([this] { return Fitness::Look{...}; });
//   if (!fitness.may_lead(now)) ...    // in each turn of the replicator
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "server/monitor/liveness.h"

namespace rkv::server {

class Fitness {
 public:
  // A device that comes back needs less.
  static constexpr Nanos kWithoutWayIn = 5 * kNanosPerSecond;
  static constexpr Nanos kBetweenLooks = kNanosPerSecond / 2;

  struct Look {
    bool has_way_in = true;  // a network by which clients may connect
    // Rising counts of the threads that clients need, always in the same order.
    std::vector<std::uint64_t> turns{};
  };
  explicit Fitness(std::function<Look()> look) : look_(std::move(look)) {}

  bool may_lead(Nanos now);
  const std::string& why_not() const { return why_not_; }  // a sentence; empty: it may

 private:
  std::string judge(Nanos now);

  const std::function<Look()> look_;
  Liveness liveness_;
  Nanos looked_at_ = 0;
  Nanos no_way_since_ = 0;  // 0: there is one
  std::string why_not_;
};

}  // namespace rkv::server
