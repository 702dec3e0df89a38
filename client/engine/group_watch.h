// Keeps the trust in the primary of a group: READs its group line and pings it, when needed. Only
// the first ping of a connection is waited for: a difference of the clocks is worth some seconds,
// and a primary that is about to lose a backup answers no ping for nearly a second.
//
// Thread safety: none. Blocks.
#pragma once

#include "client/engine/session.h"

namespace rkv::client {

class GroupWatch {
 public:
  // How long a primary that is not believed gets until another server is tried. A primary that
  // waits for the removal of a dead backup needs the failure time of ReplicationTimes.
  static constexpr Nanos kPatience = kNanosPerSecond;

  explicit GroupWatch(Session& session) : session_(session) {}

  // Makes the session believe its server at some time after the call. kDisconnected: it does not,
  // the link is closed, and another server may be tried. kTimeout: likewise, at the deadline.
  Status believe(const Deadline& deadline);
  // Waits until this version is replicated. Errors as above; kTimeout: the server is believed, and
  // the link stays open. kBusy: likewise, at `patience_end`.
  Status await_replicated(Version version, const Deadline& deadline, Nanos patience_end);

 private:
  Status compare_clocks(const Deadline& deadline);
  void take_answer();
  Status ping(const ClockReading& asked, const Deadline& deadline);
  Status look(const Deadline& deadline);
  Status give_up(const Deadline& deadline);

  Session& session_;
  ClockReading asked_{};  // before the ping that is under way in the background
};

}  // namespace rkv::client
