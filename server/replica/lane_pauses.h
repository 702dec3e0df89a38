// LanePauses: when a backup may be offered a lane. One that has not made its lane, or whose lane
// did not last, waits, and each time for twice as long: its fabric may carry what is short and lose
// what is long. What has lasted for ten minutes is forgiven.
//
// Thread safety: none: one owner.
#pragma once

#include <map>
#include <string>

#include "common/clock.h"

namespace rkv::server {

class LanePauses {
 public:
  static constexpr Nanos kFirst = 30 * kNanosPerSecond;
  static constexpr Nanos kLongest = 8 * 60 * kNanosPerSecond;
  static constexpr Nanos kLasts = 10 * 60 * kNanosPerSecond;

  bool are_over(const std::string& name, Nanos now) const;
  // A lane was offered: the next pause begins.
  void offered(const std::string& name, Nanos now);
  // A lane that was given at `since` has ended.
  void ended(const std::string& name, Nanos since, Nanos now);
  // Forgets those of long ago. In each turn: names come from peers.
  void prune(Nanos now);

 private:
  struct Pause {
    Nanos until = 0;
    Nanos length = 0;
  };
  std::map<std::string, Pause> pauses_;  // by the backup's name
};

}  // namespace rkv::server
