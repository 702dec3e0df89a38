// Atomics that do not make one caller after the other wait for a device that is stuck: when a call
// has failed for want of an answer, the calls of the next second fail at once, and nothing is asked
// of the device. Callers hold a lock while they wait (server/store_cells.cc).
//
// Thread safety: as Atomics. `atomics` is called by one thread at a time.
#pragma once

#include <memory>

#include "common/clock.h"
#include "rdma/transport.h"

namespace rkv::rdma::verbs {

// A failure that took longer was one of waiting; the device says no at once.
inline constexpr std::int64_t kStuckMs = 500;
inline constexpr std::int64_t kPauseMs = 1000;

// `clock` must outlive the result.
std::unique_ptr<Atomics> fail_fast(std::unique_ptr<Atomics> atomics, const Clock& clock);

}  // namespace rkv::rdma::verbs
