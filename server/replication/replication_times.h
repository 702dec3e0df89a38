// ReplicationTimes: how long a replica waits for another, and for how long it is believed.
//
// kDriftPercent bounds how much faster or slower one host's clock is than another's. The lease of a
// primary is shorter, and the wait of a backup longer by it (tests/model/drift.py).
#pragma once

#include "common/trust_times.h"

namespace rkv::server {

struct ReplicationTimes {
  static constexpr std::int64_t kDriftPercent = kClockDriftPercent;

  Nanos lease = kNanosPerSecond;
  Nanos window = kTrustWindow;          // a tick covers GETs that began this long after it at most
  Nanos failure = 800 * kNanosPerMs;    // without a word or progress: gone. Below `lease`
  Nanos heartbeat = 100 * kNanosPerMs;  // between messages without entries
  Nanos undecided = 2 * kNanosPerSecond;  // a change of the set may take this long

  Nanos lease_of_primary() const { return lease / 100 * (100 - kDriftPercent); }
  Nanos wait_of_backup() const { return lease / 100 * (100 + kDriftPercent) + 1; }
};

}  // namespace rkv::server
