// Atomics that fail fast while the device is stuck, so that callers do not wait for it one after
// another. When a call has failed without an answer, calls in the next second fail at once without
// using the device. Callers hold a lock while they wait (server/store/counter_cells.cc).
//
// Thread safety: as Atomics. Calls to the wrapped `atomics` are serialized.
#pragma once

#include <memory>

#include "common/clock.h"
#include "rdma/transport/transport.h"

namespace rkv::rdma::verbs {

// A failure that took at least this long was a missing answer; a refusal by the device comes at
// once.
inline constexpr std::int64_t kStuckMs = 500;
inline constexpr std::int64_t kPauseMs = 1000;

// `clock` must outlive the result.
std::unique_ptr<Atomics> fail_fast(std::unique_ptr<Atomics> atomics, const Clock& clock);

}  // namespace rkv::rdma::verbs
