#include "server/group/replica/call_pauses.h"

#include <algorithm>

namespace rkv::server {

void CallPauses::set_primary(const Member& primary) {
  if (primary.name == name_ && primary.epoch == epoch_) return;
  *this = {};
  name_ = primary.name;
  epoch_ = primary.epoch;
}

bool CallPauses::failed(const std::string& why, Nanos now) {
  length_ = std::clamp(2 * length_, kFirst, kLongest);
  until_ = now + length_;
  return reasons_.size() < kReasons && reasons_.insert(why).second;
}

bool CallPauses::ended(const std::string& why, Nanos since, Nanos now) {
  if (now - since >= kLasts) {
    length_ = 0;
    reasons_.clear();
  }
  return failed(why, now);
}

}  // namespace rkv::server
