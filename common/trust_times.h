// The times on which the primary of a replicated group and its clients must agree. By them a client
// knows for how long it may believe the primary's memory (LAYOUT.md, "The group line").
#pragma once

#include <cstdint>

#include "common/clock.h"

namespace rkv {

// Bounds how much faster or slower than the others one host's CLOCK_MONOTONIC_RAW is.
inline constexpr std::int64_t kClockDriftPercent = 1;
// A tick covers GETs that began this long after it at most.
inline constexpr Nanos kTrustWindow = 250 * kNanosPerMs;
// In place of a tick: the server must not be believed, and never will be again.
inline constexpr std::uint64_t kGivenUpTick = ~std::uint64_t{0};

}  // namespace rkv
