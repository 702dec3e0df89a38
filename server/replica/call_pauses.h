// CallPauses: when a backup calls its primary again. Each call that fails, and each connection that
// does not last, doubles the pause; a primary that is refused for good is not called, and the log
// not filled, twenty times a second. A reason is news once. A connection that lasted is forgiven,
// and so is another primary.
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
#include "server/group/configuration.h"

namespace rkv::server {

class CallPauses {
 public:
  static constexpr Nanos kFirst = 50 * kNanosPerMs;
  static constexpr Nanos kLongest = kNanosPerSecond;
  static constexpr Nanos kLasts = kNanosPerSecond;
  static constexpr std::size_t kReasons = 16;

  // Says which primary will be called. Another one than before, or another process of the same
  // name, is called at once.
  void set_primary(const Member& primary);
  bool are_over(Nanos now) const { return now >= until_; }
  // Begins a pause of kFirst, whatever has failed before: for a backup that must not be late.
  void begin_shortest(Nanos now) { until_ = now + kFirst; }
  // A call failed at `now`, or a connection that was made at `since` ended. Returns whether `why`
  // is news.
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
