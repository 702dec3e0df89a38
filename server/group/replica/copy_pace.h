// CopyPace: how far the log may grow while another replica gets a copy of the database and starts
// with it. The log grows no faster than the copy proceeds, and then no faster than a replica needs
// to start. So the log since the copy's beginning is still there when the replica connects, however
// large the database is and however fast clients could write. Otherwise the replica would need
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
  // Clients do not wait for a copy that has made no progress for this long.
  static constexpr Nanos kStandsStill = kNanosPerSecond;
  // After a copy, clients do not wait for a replica that has not connected for this long.
  static constexpr Nanos kStartsWithin = 6 * kNanosPerSecond;

  // How much the log may grow since the beginning of a copy.
  struct Growth {
    std::uint64_t at_once = 0;
    std::uint64_t at_its_end = 0;
    std::uint64_t when_it_has_started = 0;  // until the replica that got the copy has started
  };
  explicit CopyPace(const Growth& growth) : growth_(growth) {}

  struct Copy {
    std::string replica;      // that gets the copy; empty: none
    std::uint64_t bytes = 0;  // that are copied
    std::uint64_t total = 0;  // 0: not known yet
  };
  // The place up to which the log may grow, in bytes of all that it ever had, like `log_end`.
  // nullopt: no limit, even if the log is already too long. `starts`: replica() has its copy, but
  // has not connected again.
  std::optional<std::uint64_t> limit(const Copy& copy, bool starts, std::uint64_t log_end,
                                     Nanos now);
  // The replica of the last copy.
  const std::string& replica() const { return replica_; }

 private:
  static double share_of(const Copy& copy);

  const Growth growth_;
  Copy copy_;
  std::string replica_;
  std::uint64_t begin_ = 0;  // end of the log when this copy began
  Nanos moved_at_ = 0;
  // Whether clients are throttled. If so: the limit when that began, and the share of the copy or
  // of the wait that was over then.
  bool is_held_ = false;
  std::uint64_t from_ = 0;
  double from_share_ = 0;
};

}  // namespace rkv::server
