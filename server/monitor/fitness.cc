#include "server/monitor/fitness.h"

#include "common/log.h"

namespace rkv::server {

bool Fitness::may_lead(Nanos now) {
  if (looked_at_ != 0 && now - looked_at_ < kBetweenLooks) return why_not_.empty();
  // The whole process stood still: that says nothing about its threads.
  if (now - looked_at_ > 4 * kBetweenLooks) liveness_ = {};
  looked_at_ = now;
  std::string why = judge(now);
  if (why != why_not_) {
    if (why.empty()) {
      log_info(EventName("may_lead"), "this replica may be the primary again");
    } else {
      log_warn(EventName("may_not_lead"), "this replica cannot be the primary: {}", why);
    }
  }
  why_not_ = std::move(why);
  return why_not_.empty();
}

std::string Fitness::judge(Nanos now) {
  const Look look = look_();
  liveness_.look(now, look.turns);
  if (look.has_way_in) {
    no_way_since_ = 0;
  } else if (no_way_since_ == 0) {
    no_way_since_ = now;
  }
  if (no_way_since_ != 0 && now - no_way_since_ >= kWithoutWayIn)
    return "no client can reach it, as no network device works";
  if (liveness_.stuck()) return "a thread that serves clients is stuck";
  return {};
}

}  // namespace rkv::server
