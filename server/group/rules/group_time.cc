#include "server/group/rules/group_time.h"

#include <cstdlib>

namespace rkv::server {

GroupClock::GroupClock(const Reading& first, std::uint64_t unix_ms)
    : time_((unix_ms != 0 ? static_cast<std::int64_t>(unix_ms) : first.unix_ms) * kNanosPerMs),
      last_(first) {}

std::int64_t GroupClock::follow(const Reading& now) {
  time_ += runs(std::max<Nanos>(now.since_boot - last_.since_boot, 0));
  last_ = now;
  approach_ = 0;
  const std::int64_t ahead = now.unix_ms - (time_ / kNanosPerMs);
  const bool is_far = std::llabs(ahead) > kStepMs;
  if (is_far && (far_since_ == 0 || std::llabs(ahead - far_by_) > kStepMs)) {
    far_since_ = now.since_boot;
    far_by_ = ahead;
  }
  if (!is_far) far_since_ = 0;
  if (is_far && now.since_boot - far_since_ < kBelievedAfter) return 0;
  if (ahead > kStepMs) {
    time_ += ahead * kNanosPerMs;
    far_since_ = 0;
    return ahead;
  }
  if (std::llabs(ahead) > kNearMs) approach_ = ahead > 0 ? 1 : -1;
  return 0;
}

}  // namespace rkv::server
