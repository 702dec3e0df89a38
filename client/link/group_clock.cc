#include "client/link/group_clock.h"

#include <ctime>

namespace rkv::client {

namespace {

Nanos read_clock(clockid_t which) {
  timespec time{};
  clock_gettime(which, &time);
  return time.tv_sec * kNanosPerSecond + time.tv_nsec;
}

// The readings show a suspend only if they are close to each other.
constexpr int kTries = 10;
constexpr Nanos kClose = kNanosPerMs / 10;

}  // namespace

Nanos HostGroupClock::passed() const {
  return read_clock(CLOCK_BOOTTIME);
}

ClockReading HostGroupClock::read() const {
  ClockReading reading;
  for (int i = 0; i < kTries; ++i) {
    const Nanos first = read_clock(CLOCK_MONOTONIC);
    reading.passed = read_clock(CLOCK_BOOTTIME);
    reading.rate = read_clock(CLOCK_MONOTONIC_RAW);
    reading.passed_after = read_clock(CLOCK_BOOTTIME);
    const Nanos last = read_clock(CLOCK_MONOTONIC);
    // CLOCK_MONOTONIC was between its two readings: it stands still while the host is suspended.
    reading.suspended = {.least = reading.passed - last, .most = reading.passed - first};
    reading.suspended_after = {.least = reading.passed_after - last,
                               .most = reading.passed_after - first};
    if (last - first <= kClose) break;
  }
  return reading;
}

}  // namespace rkv::client
