// The time by which keys expire: the wall clock, followed while the server runs.
//
//   WallClock wall(WallClock::look(clock));
//   ... every 100 ms:
//   if (const auto step = wall.follow(WallClock::look(clock)); step != 0) tell(step);
//   store.set_wall_clock(wall.unix_ms_at_0());
//
// The clock of the store does not count while the machine sleeps, and the wall clock is set now and
// then. So the difference between the two is looked at again and again:
//  - Sleep counts: a key that expired meanwhile is gone when the machine is awake.
//  - Set back, the clock is followed at once: keys live longer than was thought.
//  - Set ahead by more than kStepMs it is followed when it has stood so for kBelievedAfter: a clock
//    that is wrong for a moment removes no key.
//
// Thread safety: none but for look().
#pragma once

#include <cstdint>

#include "common/clock.h"

namespace rkv::server {

class WallClock {
 public:
  static constexpr std::int64_t kStepMs = 1000;
  static constexpr std::int64_t kSwingMs = 2;  // not followed: the looks differ by as much
  static constexpr Nanos kBelievedAfter = 60'000 * kNanosPerMs;

  struct Look {
    Nanos clock = 0;       // as the store has it
    Nanos since_boot = 0;  // with the time asleep
    std::int64_t unix_ms = 0;
  };
  // The clocks as they were at one time.
  static Look look(const Clock& clock);

  explicit WallClock(const Look& first);
  // The step that is followed from now on, in milliseconds; 0: there is none of more than kStepMs.
  std::int64_t follow(const Look& now);
  // The time when the store's clock said 0.
  std::uint64_t unix_ms_at_0() const { return unix_ms_at_0_; }

 private:
  static std::int64_t booted_at(const Look& look) {
    return look.unix_ms - look.since_boot / kNanosPerMs;
  }

  std::int64_t booted_at_;  // by the wall clock as it is believed
  std::uint64_t unix_ms_at_0_ = 0;
  Nanos ahead_since_ = 0;  // 0: it is not
  std::int64_t ahead_to_ = 0;
};

}  // namespace rkv::server
