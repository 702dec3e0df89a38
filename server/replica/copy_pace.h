// CopyPace: how far the log may grow while the database is copied to another replica. It grows no
// faster than the copy proceeds, so the log since the copy's beginning is still there at its end,
// however large the database is and however fast clients could write. Else the replica would need
// another copy.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/clock.h"

namespace rkv::server {

class CopyPace {
 public:
  // Clients do not wait for a copy that has stood still for so long.
  static constexpr Nanos kStandsStill = kNanosPerSecond;

  // How much the log may grow at once when a copy begins, and until its end.
  CopyPace(std::uint64_t first_bytes, std::uint64_t last_bytes)
      : first_bytes_(first_bytes), last_bytes_(last_bytes) {}

  // Up to which place the log may grow: in bytes of all that it ever had, as `log_end` is. Nothing:
  // as it likes. `replica`: that gets the copy; empty: none. `total`: 0: not known yet.
  std::optional<std::uint64_t> limit(const std::string& replica, std::uint64_t bytes,
                                     std::uint64_t total, std::uint64_t log_end, Nanos now);

 private:
  const std::uint64_t first_bytes_;
  const std::uint64_t last_bytes_;
  std::string replica_;
  std::uint64_t bytes_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t begin_ = 0;  // of the log, when this copy began
  Nanos moved_at_ = 0;
};

}  // namespace rkv::server
