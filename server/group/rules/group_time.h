// The time by which the keys of a group expire. Every replica in sync knows it, so that no key that
// was seen expired returns when another replica becomes the primary. It does not follow a clock
// that is wrong for a moment.
//
// The primary sends its time (GroupClock) in each message. A backup takes that as the time when the
// message arrived, and lets it run (KnownTime). The primary does the same from the arrival of the
// answer, which is later, and lets that time run slower. So it knows a time that the backup has
// passed, however long messages take. It judges by the least of these times. A backup that takes
// over continues from its own time, which is behind the old primary's clock by one message's delay.
//
// Rates: kDriftPercent bounds by how much clocks differ, so 1 - 2e of a backup's is slower than the
// primary's clock, and 1 - 4e of the primary's is slower than that (tests/model/drift.py).
//
// Invariants:
//  GROUPTIME-1  KnownTime runs at a fixed rate between raises, and never falls.
//  GROUPTIME-2  GroupClock is never set back. It is set ahead only if the wall clock stays ahead by
//      more than kStepMs for kBelievedAfter; else it approaches the wall clock by one in kApproach.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/clock.h"
#include "server/group/rules/replication_times.h"

namespace rkv::server {

// A time that was heard from another replica and runs on, slower than clocks by `Percent`.
template <int Percent>
class KnownTime {
 public:
  bool is_known() const { return unix_ms_ != 0; }
  // Returns the time at `now`; 0: none is known.
  std::uint64_t at(Nanos now) const { return run(now, 100 - Percent); }
  // Returns the time as a clock of this host would count it; not below at().
  std::uint64_t by_clock(Nanos now) const { return run(now, 100); }
  // The time was at least `unix_ms` at `now`.
  void raise(std::uint64_t unix_ms, Nanos now) {
    if (unix_ms <= at(now)) return;
    unix_ms_ = unix_ms;
    at_ = now;
  }

 private:
  std::uint64_t run(Nanos now, Nanos percent) const {
    if (unix_ms_ == 0) return 0;
    const Nanos passed = std::max<Nanos>(now - at_, 0) / 100 * percent;
    return unix_ms_ + static_cast<std::uint64_t>(passed / kNanosPerMs);
  }

  std::uint64_t unix_ms_ = 0;
  Nanos at_ = 0;
};

using TimeOfBackup = KnownTime<2 * ReplicationTimes::kDriftPercent>;
using TimeOfAnswers = KnownTime<4 * ReplicationTimes::kDriftPercent>;

// The time that a primary judges by: it runs with the clock until `until`, and stands still from
// then on. So a server need not ask for it at each moment.
struct TimeLine {
  static constexpr Nanos kRuns = 250 * kNanosPerMs;

  std::int64_t unix_ms_at_0 = 0;  // the time when the clock read 0
  Nanos until = 0;
  // The same for the primary's GroupClock, which is ahead. Times to live begin by it: otherwise a
  // key that is written while the line is behind would end early.
  std::int64_t begins_at_0 = 0;

  std::uint64_t at(Nanos now) const {
    const std::int64_t unix_ms = unix_ms_at_0 + (std::min(now, until) / kNanosPerMs);
    return static_cast<std::uint64_t>(std::max<std::int64_t>(unix_ms, 0));
  }
};

// The time of a primary: it begins with the time at the take-over, and runs at the rate of the
// primary's own clock.
class GroupClock {
 public:
  static constexpr std::int64_t kStepMs = 1000;
  static constexpr Nanos kBelievedAfter = 60 * kNanosPerSecond;
  static constexpr Nanos kApproach = 200;
  static constexpr std::int64_t kNearMs = 2;  // readings differ by up to this much

  // The clocks of this host, as if all were read at once.
  struct Reading {
    Nanos clock = 0;       // of the group
    Nanos since_boot = 0;  // including time asleep
    std::int64_t unix_ms = 0;
  };

  // Begins at `unix_ms`; 0: nobody knows the group's time, so the clock begins at the wall clock's.
  GroupClock(const Reading& first, std::uint64_t unix_ms);
  // Follows the clocks of this host. Returns by how many milliseconds the time was set ahead; 0: it
  // was not.
  std::int64_t follow(const Reading& now);
  std::uint64_t unix_ms(Nanos clock) const {
    return static_cast<std::uint64_t>((time_ + runs(clock - last_.clock)) / kNanosPerMs);
  }

 private:
  Nanos runs(Nanos passed) const {
    return passed + (approach_ * std::min(passed, kNanosPerSecond) / kApproach);
  }

  Nanos time_;  // at last_, since 1970
  Reading last_;
  int approach_ = 0;         // 1: the wall clock is ahead; -1: it is behind
  Nanos far_since_ = 0;      // since_boot; 0: the wall clock is not far away
  std::int64_t far_by_ = 0;  // milliseconds
};

}  // namespace rkv::server
