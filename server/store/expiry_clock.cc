#include "server/store/expiry_clock.h"

#include <algorithm>

namespace rkv::server {

void ExpiryClock::keep_expired(Version through, std::uint64_t until_ms) {
  const MutexLock lock(mutex_);
  std::erase_if(kept_, [&](const Kept& kept) {
    return kept.through <= through && kept.until_ms <= until_ms;
  });
  kept_.push_back({.through = through, .until_ms = until_ms});
  keeps_.store(true, std::memory_order_release);
}

bool ExpiryClock::is_kept_expired(std::uint64_t expiry_ms, Version version) const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(kept_, [&](const Kept& kept) {
    return version <= kept.through && expiry_ms <= kept.until_ms;
  });
}

}  // namespace rkv::server
