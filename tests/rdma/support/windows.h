// A loopback whose server's memory is accessible by windows only, and helpers for tests of keys.
#pragma once

#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::testing {

// Closed to peers except by windows: no access here can succeed by the region's own key.
inline constexpr AccessFlags kWindowsOnly = AccessFlags::kLocalWrite | AccessFlags::kBindWindow;

inline LoopbackOptions with_windows() {
  LoopbackOptions options;
  options.server_region = kWindowsOnly;
  options.qp.operations = kAllSendOps | kWindowOps;
  return options;
}

template <class Fill>
WorkCompletion run(Side& side, Fill fill) {
  Batch batch = side.qp->batch();
  fill(batch);
  need(std::move(batch).submit());
  return side.completion();
}

inline WorkCompletion read(Loopback& loop, const RemoteSpan& from) {
  return run(loop.client, [&](Batch& batch) {
    batch.read(2, OpFlags::kSignaled, loop.client.memory.local(0, 8), from);
  });
}

// Each refusal ends the connection, so a test has one refusal, as its last step.
inline void expect_refused(Loopback& loop, const RemoteSpan& from) {
  const WorkCompletion done = read(loop, from);
  EXPECT_EQ(explain(done.status).kind, WcClass::kRemoteRefused) << done.status;
}

}  // namespace rkv::rdma::testing
