#include "server/store/pins.h"

namespace rkv::server {

// Racing threads may overwrite each other's history, which is then off by a millisecond. Nothing
// depends on that.
bool Pins::within_limit(std::uint32_t stripe, std::uint32_t now_ms) {
  const std::uint64_t history = history_[stripe].load(std::memory_order_relaxed);
  const auto last = static_cast<std::uint32_t>(history);
  auto since = static_cast<std::uint32_t>(history >> 32);
  const bool paused = history == 0 || now_ms - last > kPinWindowMs;
  if (paused || now_ms - since >= 2 * kPinLimitMs) since = now_ms;
  history_[stripe].store(std::uint64_t{since} << 32 | now_ms, std::memory_order_relaxed);
  return now_ms - since < kPinLimitMs;
}

}  // namespace rkv::server
