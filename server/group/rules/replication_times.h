// ReplicationTimes: how long a replica waits for another, and for how long it is believed.
//
// kDriftPercent bounds how much faster or slower one host's clock is than another's. By it a
// primary's lease is shortened and a backup's wait lengthened (tests/model/drift.py).
#pragma once

#include "common/trust_times.h"

namespace rkv::server {

struct ReplicationTimes {
  static constexpr std::int64_t kDriftPercent = kClockDriftPercent;

  Nanos lease = kNanosPerSecond;
  Nanos window = kTrustWindow;        // a tick covers GETs that began this long after it at most
  Nanos failure = 800 * kNanosPerMs;  // silent or without progress this long: gone. Below `lease`
  // A backup deposes a primary that it has not heard for this long. If a primary and a backup do
  // not hear each other, the primary stays, as it has left the backup out by then. With equal
  // times, chance would decide whether a failing link costs a backup or the primary. This time
  // hardly delays a take-over: an elected backup may not act before wait_of_backup() is over.
  Nanos deposing = kNanosPerSecond;
  Nanos heartbeat = 100 * kNanosPerMs;    // between messages without entries
  Nanos undecided = 2 * kNanosPerSecond;  // a change of the set may take this long
  // A primary that is alone in sync, in a group of more, is believed for this long after the store
  // was asked whether it is still the primary.
  Nanos alone = 15 * kNanosPerSecond;

  Nanos lease_of_primary() const { return lease / 100 * (100 - kDriftPercent); }
  Nanos wait_of_backup() const { return lease / 100 * (100 + kDriftPercent) + 1; }
  Nanos lease_alone() const { return alone / 100 * (100 - kDriftPercent); }
  Nanos wait_for_alone() const { return alone / 100 * (100 + kDriftPercent) + 1; }
};
// PRIMARY-11: a primary that hears nobody is deposed before it leaves anybody out.
static_assert(ReplicationTimes{}.failure < ReplicationTimes{}.deposing &&
              ReplicationTimes{}.deposing < 2 * ReplicationTimes{}.failure);

}  // namespace rkv::server
