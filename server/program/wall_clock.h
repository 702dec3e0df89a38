// WallClock: the time by which keys expire. It follows the wall clock while the server runs.
//
//   WallClock wall(WallClock::look(clock));
//   ... every 100 ms:
//   if (const auto step = wall.follow(WallClock::look(clock)); step != 0) tell(step);
//   store.expiry_clock().set(wall.unix_ms_at_0());
//
// The store's clock stops while the machine sleeps, and the wall clock is set now and then. So the
// difference between the two is measured repeatedly:
//  - Sleep counts: a key that expired meanwhile no longer exists when the machine is awake.
//  - A wall clock that is set back is followed at once: keys live longer than expected.
//  - A wall clock that is set ahead by more than kStepMs is followed after kBelievedAfter. So a
//    clock that is wrong for a moment removes no key.
//
// Thread safety: only look() and the free function may run in any thread.
#pragma once

#include <cstdint>

#include "common/clock.h"

namespace rkv::server {

// Unix nanoseconds now, by the machine's wall clock. Any thread.
std::int64_t wall_clock_ns();

class WallClock {
 public:
  static constexpr std::int64_t kStepMs = 1000;
  // Smaller changes are ignored: readings differ by as much.
  static constexpr std::int64_t kSwingMs = 2;
  static constexpr Nanos kBelievedAfter = 60'000 * kNanosPerMs;

  struct Look {
    Nanos clock = 0;       // the store's clock
    Nanos since_boot = 0;  // including time asleep
    std::int64_t unix_ms = 0;
  };
  // Reads the clocks as if at one time.
  static Look look(const Clock& clock);

  explicit WallClock(const Look& first);
  // Applies a reading. Returns the step of the wall clock that is followed from now on, in
  // milliseconds. Returns 0 if there is no step of more than kStepMs.
  std::int64_t follow(const Look& now);
  // The wall clock's time when the store's clock read 0.
  std::uint64_t unix_ms_at_0() const { return unix_ms_at_0_; }

 private:
  static std::int64_t booted_at(const Look& look) {
    return look.unix_ms - look.since_boot / kNanosPerMs;
  }

  std::int64_t booted_at_;  // boot time, by the wall clock that is followed
  std::uint64_t unix_ms_at_0_ = 0;
  Nanos ahead_since_ = 0;  // 0: not set ahead
  std::int64_t ahead_to_ = 0;
};

}  // namespace rkv::server
