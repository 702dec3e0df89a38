#include "server/clients/admission/offences.h"

#include <algorithm>

namespace rkv::server {

void Offences::add(std::string_view origin, Nanos now) {
  if (interval_ == 0) return;
  const MutexLock lock(mutex_);
  std::erase_if(until_, [&](const auto& one) { return one.second <= now; });
  auto at = until_.find(origin);
  if (at == until_.end()) {
    if (until_.size() >= kMostOrigins) {  // forget the origin whose offences expire first
      until_.erase(std::ranges::min_element(until_, {}, &Until::value_type::second));
    }
    at = until_.emplace(origin, now).first;
  }
  put_off(at->second, now);
}

void Offences::add_newcomer(std::string_view origin, Nanos now) {
  const MutexLock lock(mutex_);
  const auto at = until_.find(origin);
  if (at != until_.end() && at->second - now > kMany * interval_) put_off(at->second, now);
}

void Offences::put_off(Nanos& until, Nanos now) const {
  until = std::min(until + interval_, now + kAtOnce * interval_);
}

bool Offences::too_many(std::string_view origin, Nanos now) {
  const MutexLock lock(mutex_);
  const auto at = until_.find(origin);
  return at != until_.end() && at->second - now > (kAtOnce - 1) * interval_;
}

std::size_t Offences::remembered() {
  const MutexLock lock(mutex_);
  return until_.size();
}

}  // namespace rkv::server
