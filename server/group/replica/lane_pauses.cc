#include "server/group/replica/lane_pauses.h"

#include <algorithm>

namespace rkv::server {

bool LanePauses::are_over(const std::string& name, Nanos now) const {
  const auto at = pauses_.find(name);
  return at == pauses_.end() || now >= at->second.until;
}

void LanePauses::offered(const std::string& name, Nanos now) {
  Pause& pause = pauses_[name];
  pause.length = std::clamp(2 * pause.length, kFirst, kLongest);
  pause.until = now + kMadeWithin + pause.length;
}

void LanePauses::not_made(const std::string& name, Nanos now) {
  if (const auto at = pauses_.find(name); at != pauses_.end())
    at->second.until = now + at->second.length;
}

void LanePauses::ended(const std::string& name, Nanos since, Nanos now) {
  const auto at = pauses_.find(name);
  if (at == pauses_.end()) return;
  if (now - since >= kLasts) {
    pauses_.erase(at);
  } else {
    at->second.until = now + at->second.length;
  }
}

void LanePauses::prune(Nanos now) {
  std::erase_if(pauses_, [now](const auto& each) { return each.second.until + kLasts <= now; });
}

}  // namespace rkv::server
