#include "server/group/lane/lane_reaper.h"

#include <system_error>
#include <utility>

#include "common/thread.h"

namespace rkv::server {

LaneReaper::~LaneReaper() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LaneReaper::take(LaneParts parts) {
  const MutexLock lock(mutex_);
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      return;  // and so does the caller's thread
    }
  }
  taken_.push_back(std::move(parts));
  changed_.notify_one();
}

void LaneReaper::run() {
  name_thread("rkv-lane-ends");
  for (;;) {
    std::vector<LaneParts> ends;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && taken_.empty())
        changed_.wait(mutex_);
      if (taken_.empty()) return;
      ends.swap(taken_);
    }
  }
}

}  // namespace rkv::server
