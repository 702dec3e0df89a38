// CallPauses: when a backup calls its primary again. Each call that fails, and each connection that
// does not last, doubles the pause. So a primary that refuses this backup for good is not called,
// and the log not filled, twenty times a second. Each reason is reported as new once. A connection
// that lasted resets the pause and the reasons, and so does another primary.
//
//   pauses.set_primary(primary);
//   if (pauses.are_over(now)) call();
//   if (pauses.failed(why, now)) log_warn(...);   // what the log has not said yet
//
// Thread safety: none: one owner.
#pragma once

#include <set>
#include <string>

#include "common/clock.h"
#include "server/group/configuration/configuration.h"

namespace rkv::server {

class CallPauses {
 public:
  static constexpr Nanos kFirst = 50 * kNanosPerMs;
  static constexpr Nanos kLongest = kNanosPerSecond;
  static constexpr Nanos kLasts = kNanosPerSecond;
  static constexpr std::size_t kReasons = 16;

  // Says which primary will be called. If it is another one, or another process of the same name,
  // the pause ends at once.
  void set_primary(const Member& primary);
  bool are_over(Nanos now) const { return now >= until_; }
  // Begins a pause of kFirst, whatever failed before: for a backup that must not be late.
  void begin_shortest(Nanos now) { until_ = now + kFirst; }
  // A call failed at `now`, or a connection that was made at `since` ended. Both return whether
  // `why` is new for the log.
  bool failed(const std::string& why, Nanos now);
  bool ended(const std::string& why, Nanos since, Nanos now);

 private:
  std::string name_;
  std::uint64_t epoch_ = 0;
  std::set<std::string> reasons_;  // at most kReasons
  Nanos length_ = 0;
  Nanos until_ = 0;
};

}  // namespace rkv::server
