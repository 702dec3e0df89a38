#include "server/program/wall_clock.h"

#include <cstdlib>
#include <ctime>
#include <limits>

namespace rkv::server {

namespace {

Nanos time_of(clockid_t id) {
  timespec time{};
  clock_gettime(id, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::int64_t wall_clock_ns() {
  return time_of(CLOCK_REALTIME);
}

// A thread that loses the processor between two clock reads would see a step. So the shortest of
// several readings is used: the clocks in it were read almost at one time.
WallClock::Look WallClock::look(const Clock& clock) {
  constexpr int kTries = 16;
  constexpr Nanos kShort = kNanosPerMs / 10;
  Look best;
  Nanos shortest = std::numeric_limits<Nanos>::max();
  for (int i = 0; i < kTries && shortest > kShort; ++i) {
    const Nanos began = clock.now();
    Look look{.since_boot = time_of(CLOCK_BOOTTIME),
              .unix_ms = time_of(CLOCK_REALTIME) / kNanosPerMs};
    look.clock = clock.now();
    const Nanos took = look.clock - began;
    if (took >= shortest) continue;
    shortest = took;
    best = look;
  }
  return best;
}

WallClock::WallClock(const Look& first) : booted_at_(booted_at(first)) {
  (void)follow(first);
}

std::int64_t WallClock::follow(const Look& now) {
  const std::int64_t found = booted_at(now);
  const std::int64_t step = found - booted_at_;
  bool believed = step <= kStepMs;
  if (!believed) {
    if (ahead_since_ == 0 || std::llabs(found - ahead_to_) > kStepMs) {
      ahead_since_ = now.since_boot;
      ahead_to_ = found;
    }
    believed = now.since_boot - ahead_since_ >= kBelievedAfter;
  }
  if (believed) {
    booted_at_ = found;
    ahead_since_ = 0;
  }
  const std::int64_t asleep_ms = (now.since_boot - now.clock) / kNanosPerMs;
  const std::int64_t at_0 = booted_at_ + asleep_ms;
  // Both clocks are truncated to milliseconds, so their difference swings. Following the swing
  // would expire keys early.
  if (std::llabs(at_0 - static_cast<std::int64_t>(unix_ms_at_0_)) > kSwingMs)
    unix_ms_at_0_ = static_cast<std::uint64_t>(at_0);
  return believed && std::llabs(step) > kStepMs ? step : 0;
}

}  // namespace rkv::server
