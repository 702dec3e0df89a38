// Includes rkv/clock.h and adds the clock of a replicated group and the wall clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

#include "rkv/clock.h"  // IWYU pragma: export

namespace rkv {

// The clock of a replicated group. Nobody slews it, so that its rate is that of the hardware; it
// stands still while the host is suspended.
class RawClock final : public Clock {
 public:
  Nanos now() const override {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return time.tv_sec * kNanosPerSecond + time.tv_nsec;
  }
};

// Unix milliseconds by this host's wall clock, which may be set forwards and backwards.
inline std::uint64_t wall_clock_ms() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count());
}

}  // namespace rkv
