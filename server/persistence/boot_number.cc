#include "server/persistence/boot_number.h"

#include <optional>

namespace rkv::server {

namespace {

constexpr std::int64_t kNanosPerSecond = 1'000'000'000;
constexpr std::int64_t k2020 = 1'577'836'800;  // in seconds since 1970

std::optional<std::uint32_t> seconds_since_2020(std::int64_t unix_ns) {
  const std::int64_t seconds = unix_ns / kNanosPerSecond - k2020;
  if (seconds < 1 || seconds > std::int64_t{kLatestBoot}) return std::nullopt;
  return static_cast<std::uint32_t>(seconds);
}

}  // namespace

std::uint32_t least_boot_at(std::int64_t unix_ns) {
  return seconds_since_2020(unix_ns).value_or(1);
}

FirstVersion first_version_at(std::int64_t unix_ns, std::uint64_t random) {
  const auto boot = seconds_since_2020(unix_ns);
  if (!boot) {
    // Above all boot numbers that times give, so that a corrected clock does not repeat them, but
    // not at the very end.
    const auto drawn = static_cast<std::uint32_t>(random >> 34);
    return {.boot = kLatestBoot + 1 + drawn, .sequence = random & 0xFFFFFFFFU};
  }
  const auto nanos = static_cast<std::uint64_t>(unix_ns % kNanosPerSecond);
  return {.boot = *boot, .sequence = (nanos << 32) / kNanosPerSecond};
}

}  // namespace rkv::server
