// Connects to a server, checks the connection, and connects again with back-off.
//
// Invariants:
//  ENG-2  Map and caches belong to one epoch and root region. If a connect finds another epoch or
//      root region, they are emptied before anything is read.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

#include "client/engine/group_watch.h"
#include "client/engine/session.h"
#include "client/link/retry_policy.h"

namespace rkv::client {

// A check that may refuse a server that a connector has connected to.
class ConnectPolicy {
 public:
  virtual ~ConnectPolicy() = default;
  // Returns whether the server may be used. `epoch`: drawn by the server's present start; no other
  // start has it.
  virtual Status admit(const Session& session, std::uint64_t epoch) = 0;
};

class Connector {
 public:
  // The error of an operation that ends before another attempt to connect was due.
  static constexpr Error kWaits{.code = Code::kDisconnected,
                                .text = "the connection is lost; waiting before the next try"};

  // `policy` may be null. The arguments must outlive the connector.
  Connector(Session& session, ConnectPolicy* policy);

  // The deadline of an operation. A timeout of 0 means the one of the options.
  Deadline deadline(std::chrono::milliseconds timeout) const {
    const Deadline own = Deadline::after_ms(
        session_.clock, (timeout.count() > 0 ? timeout : session_.options.timeout).count());
    return {session_.clock, std::min(own.at(), latest_)};
  }
  // Caps the deadline of every operation at `at` until clear_deadline_cap().
  void set_deadline_cap(Nanos at) { latest_ = at; }
  void clear_deadline_cap() { latest_ = std::numeric_limits<Nanos>::max(); }

  // Reconnects with back-off, to the servers of a group in turn. Blocks until the deadline at most.
  // On success, a server of a group is believed at some time after the call began.
  Status ensure_connected(const Deadline& deadline);
  // Makes the session usable, and its server believed at some time after the call began. From then
  // on an operation may return what it sees over this connection (TRUST-1).
  Status make_ready(const Deadline& deadline);
  // Like make_ready(), without connecting again. REQUIRES: the session is usable.
  Status believe(const Deadline& deadline);
  // In a group, waits until a version is replicated. kDisconnected: the server is not believed.
  // kBusy: the version is not replicated at `patience_end`, which comes before the deadline.
  Status await_replicated(Version version, const Deadline& deadline,
                          Nanos patience_end = std::numeric_limits<Nanos>::max());
  // Checks without waiting whether the connection has ended, before a write is sent.
  void check_link();
  // The server has answered: the next back-off begins at its shortest.
  void progressed() { backoff_.reset(); }
  // READs the mark lines once; repeats the READ while they do not verify, and when the connection
  // is lost.
  Status read_marks(const Deadline& deadline);

  // ---- ensure_connected() in steps, for a caller that has several connectors.

  // When the next attempt to connect is due, for an operation with this deadline. A time at or
  // after the deadline: no attempt is due.
  Nanos next_attempt(const Deadline& deadline);
  // Makes one attempt to connect. Blocks for the connect_timeout, and until the deadline, at most.
  Status connect_once(const Deadline& deadline);
  // Like connect_once(), and then tries the other servers of a group until one of them would need a
  // wait.
  Status connect_without_wait(const Deadline& deadline);
  // Returns true if another attempt may succeed after this error, with a group at another server.
  static bool worth_repeating(const Error& error);

 private:
  Status attempt(const Deadline& deadline);
  void move_on(const Error& error);
  void distrust();
  Nanos patience_for_lines(const Deadline& deadline) const;
  Nanos wait_before_attempt();

  Session& session_;
  ConnectPolicy* const policy_;
  GroupWatch watch_;
  Backoff backoff_;
  bool at_once_ = false;        // the next attempt is to another server of the group
  bool has_less_time_ = false;  // the last attempt was cut short by its call's deadline
  Nanos reconnect_at_ = 0;      // no attempt to connect before this time
  Nanos attempted_at_ = 0;      // end of the last attempt
  Nanos latest_ = std::numeric_limits<Nanos>::max();  // deadline cap, set by set_deadline_cap()
  Nanos looked_at_ = 0;                               // last check by check_link()
  bool connected_once_ = false;
};

}  // namespace rkv::client
