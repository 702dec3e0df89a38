#include "server/group/replica/departure.h"

#include "common/log.h"

namespace rkv::server {

Status Departure::begin(Primary& primary, const std::string& name, Nanos now) {
  RKV_RETURN_IF_ERROR(succession_.begin(primary, name, now));
  log_info(EventName("handing_over"), "handing over to {}",
           field("successor", succession_.successor().name));
  return {};
}

void Departure::step(Primary& primary, Nanos now) {
  if (!succession_.is_under_way()) return;
  const auto told = succession_.step(primary, now, is_closed_ && outside_.is_quiet());
  if (!succession_.is_under_way()) {
    return log_warn(EventName("hand_over_ended"),
                    "nobody is there to hand over to, or a disk of the group is too slow: this "
                    "replica stays the primary");
  }
  if (succession_.is_closed() && !is_closed_) {
    is_closed_ = true;
    outside_.close(succession_.successor().address);
  }
  if (!told) return;
  outside_.tell(told->peer, told->message);
  log_info(EventName("handed_over"), "replica {} may be the primary now",
           field("successor", succession_.successor().name));
}

}  // namespace rkv::server
