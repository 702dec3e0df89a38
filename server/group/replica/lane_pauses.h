// LanePauses: when a backup may be offered a lane. A backup that could not make its lane, or whose
// lane did not last, waits twice as long each time. Its fabric may carry short messages and lose
// long ones. The first pause is short, since a busy host may just have been too slow. A lane that
// lasted ten minutes resets the pause.
//
// Thread safety: none: one owner.
#pragma once

#include <map>
#include <string>

#include "common/clock.h"

namespace rkv::server {

class LanePauses {
 public:
  static constexpr Nanos kFirst = kNanosPerSecond;
  static constexpr Nanos kLongest = 8 * 60 * kNanosPerSecond;
  static constexpr Nanos kLasts = 10 * 60 * kNanosPerSecond;
  // Within this time a backup makes the lane, or says that it cannot. A new offer within this time
  // would end the attempt. An attempt may take much longer than LaneCaller::kConnectMs: half a
  // minute was seen on an emulated machine that was short of processors.
  static constexpr Nanos kMadeWithin = 60 * kNanosPerSecond;

  bool are_over(const std::string& name, Nanos now) const;
  // A lane was offered. The next pause begins when the lane was not made, or has ended.
  void offered(const std::string& name, Nanos now);
  // The backup could not make the lane that it was offered.
  void not_made(const std::string& name, Nanos now);
  // A lane that was given at `since` has ended.
  void ended(const std::string& name, Nanos since, Nanos now);
  // Forgets old pauses. Call it in each turn: names come from peers, so they must not accumulate.
  void prune(Nanos now);

 private:
  struct Pause {
    Nanos until = 0;
    Nanos length = 0;
  };
  std::map<std::string, Pause> pauses_;  // by the backup's name
};

}  // namespace rkv::server
