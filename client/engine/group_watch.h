// GroupWatch: keeps the trust in the primary of a group up to date. It READs the group line and
// pings the primary when needed. Calls wait only for the first ping of a connection: a clock
// difference stays usable for some seconds. A primary that is about to lose a backup answers no
// ping for nearly a second.
//
// While a call waits for an answer, the tick of the group line shows whether the primary is alive.
// A primary that stands still, was replaced or cannot be reached shows no new tick. This needs no
// trust in the primary: earlier requests are covered by the trust at their time.
//
// Thread safety: none. Blocks, apart from may_wait().
#pragma once

#include "client/engine/session.h"

namespace rkv::client {

class GroupWatch final : public LinkWatch {
 public:
  // How long a client waits for a primary that is not believed, or shows no new tick, before it
  // tries another server. A primary that waits for the removal of a dead backup needs the failure
  // time of ReplicationTimes.
  static constexpr Nanos kPatience = kNanosPerSecond;
  // The line arrives behind a long value that is under way. So if a slow network carries this many
  // bytes between two questions, the client does not leave the server.
  static constexpr std::uint64_t kProgressBytes = std::uint64_t{16} << 10;
  // Number of questions without a new tick until the client leaves. So a client that stood still
  // itself does not blame others.
  static constexpr int kQuestions = static_cast<int>(kPatience / LinkWatch::kEvery);

  explicit GroupWatch(Session& session) : session_(session) {}

  // Makes the session believe its server at some time after the call began. kDisconnected: it does
  // not, the link is closed, and another server may be tried. kTimeout: likewise, at the deadline.
  Status believe(const Deadline& deadline);
  // Waits until this version is replicated. Errors as above; kTimeout: the server is believed, and
  // the link stays open. kBusy: likewise, at `patience_end`.
  Status await_replicated(Version version, const Deadline& deadline, Nanos patience_end);
  // Begins to watch the waits over the new connection.
  void begin();
  // Whether the server has shown a new tick lately. If not, the client tries another server.
  bool may_wait() override;

 private:
  Status compare_clocks(const Deadline& deadline);
  void take_answer();
  Status ping(const ClockReading& asked, const Deadline& deadline);
  Status look(const Deadline& deadline);
  Status give_up(const Deadline& deadline);
  bool has_news();

  Session& session_;
  ClockReading asked_{};  // reading before the background ping that is under way
  bool asks_ = false;     // believe() is asking, with its own patience
  // Used by may_wait():
  int questions_ = 0;  // questions without a new tick
  std::uint64_t tick_ = 0;
  std::uint64_t passed_ = 0;  // bytes
};

}  // namespace rkv::client
