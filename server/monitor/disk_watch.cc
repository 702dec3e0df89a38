#include "server/monitor/disk_watch.h"

#include <utility>

#include "common/log.h"

namespace rkv::server {

void DiskWatch::look(const LogFacts& log) {
  if (log.disk_hangs == std::exchange(hangs_, log.disk_hangs)) return;
  if (log.disk_hangs) {
    log_error(EventName("disk_hangs"),
              "a write or sync of the disk has taken {} ms so far: durable writes wait, others are "
              "accepted until the queue is full, reads go on",
              field("ms", log.disk_failed_ms));
  } else {
    log_warn(EventName("disk_answers"), "the disk answers again: it is {}",
             field("disk_state", log.disk_name()));
  }
}

}  // namespace rkv::server
