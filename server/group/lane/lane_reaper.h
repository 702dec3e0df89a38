// LaneReaper: destroys the parts of lanes. A lost or hanging device may hold that up for seconds,
// in which the replicator's thread must send heartbeats.
//
// Thread safety: any thread.
#pragma once

#include <thread>
#include <vector>

#include "common/mutex.h"
#include "server/group/lane/lane_parts.h"

namespace rkv::server {

class LaneReaper {
 public:
  LaneReaper() = default;
  ~LaneReaper();  // blocks until all taken parts are destroyed
  LaneReaper(const LaneReaper&) = delete;
  LaneReaper& operator=(const LaneReaper&) = delete;

  // Does not block, unless no thread can be started. REQUIRES: nothing uses the parts.
  void take(LaneParts parts);

 private:
  void run();

  std::thread thread_;  // from the first take()
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<LaneParts> taken_ RKV_GUARDED_BY(mutex_);
  bool stopping_ RKV_GUARDED_BY(mutex_) = false;
};

}  // namespace rkv::server
