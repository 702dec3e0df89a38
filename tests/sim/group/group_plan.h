// GroupPlan: what a seed draws for a simulated group, and the faults put into it to see them
// noticed.
#pragma once

#include <cstdint>

namespace rkv::sim {

// A rule that is left out, as a canary. None is the product.
enum class BrokenRule : std::uint8_t {
  kNone,
  kActsAtOnce,           // a backup that takes over waits for nothing
  kNoTick,               // a GET is believed without a look at the tick line
  kTickIgnoresLease,     // the primary ticks whatever its lease is
  kShowsAboveMark,       // a GET answers what is not replicated
  kAnswersAtOnce,        // a write is answered before it is replicated
  kAdmitsAtOnce,         // a new primary serves before what it inherited is in its engine
  kDiskAboveMark,        // engines take what is not replicated
  kAnswersUnwritten,     // a backup answers as written what it has in memory only
  kHandsOverEarly,       // a primary hands over while a tick still covers calls
  kTicksOn,              // a primary that has handed over ticks as long as its lease lasts
  kFollowsWallClock,     // the group's time is the primary's wall clock
  kTimeByOwnWall,        // a new primary's time begins with its own wall clock
  kTimeBeginsAhead,      // a new primary's clock is ahead of what it knows
  kEtcdComparesNothing,  // etcd stores a transaction although its comparison fails
  kLosesRevoked,         // a change of another kind is stored without what was revoked before
  kAnswersRevoked,       // a revocation is answered before etcd has it
  kJoinsUnreached,       // a backup joins although the primary has not reached it
};

struct GroupPlan {
  std::uint64_t seed = 1;
  BrokenRule broken = BrokenRule::kNone;
  // Writes are answered, and shown, when they are in the memory of all. Then no process is killed:
  // what the last ones had in memory only is lost with them. Otherwise: in their write-ahead logs.
  bool answers_from_memory() const { return seed % 2 == 0; }
};

struct GroupVerdict {
  const char* wrong = nullptr;  // nullptr: all answers were right
  const char* stuck = nullptr;  // nullptr: all replicas serve again when all faults are over
  std::uint64_t writes = 0;     // answered
  std::uint64_t gets = 0;       // believed
  std::uint64_t terms = 0;      // take-overs, and the founding
  std::uint64_t joins = 0;      // into the set of replicas in sync
  std::uint64_t copies = 0;     // of engines
  std::uint64_t handed_over = 0;
  std::uint64_t expired = 0;  // keys that were seen so
  std::uint64_t revoked = 0;  // secrets, answered
  std::uint64_t trace = 0;    // equal for equal runs

  // Adds the counts of another run.
  void add(const GroupVerdict& one) {
    writes += one.writes;
    gets += one.gets;
    terms += one.terms;
    joins += one.joins;
    copies += one.copies;
    handed_over += one.handed_over;
    expired += one.expired;
    revoked += one.revoked;
  }
};

// Runs 3 replicas, an etcd and two clients for some 40 simulated seconds.
GroupVerdict run_group(const GroupPlan& plan);

}  // namespace rkv::sim
