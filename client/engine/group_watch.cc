#include "client/engine/group_watch.h"

#include <algorithm>

#include "client/link/retry_policy.h"

namespace rkv::client {

namespace {
constexpr Nanos kFirstPause = kNanosPerMs / 10;
constexpr Nanos kLongestPause = 10 * kNanosPerMs;
}  // namespace

Status GroupWatch::ping(const ClockReading& asked, const Deadline& deadline) {
  const auto reply = session_.link.call({.opcode = Opcode::kPing}, deadline);
  if (!reply) return std::unexpected(reply.error());
  ++session_.stats.two_sided_requests;
  const Response& response = reply->response();
  session_.learn_marks(response);
  if (response.code != 0) return fail(Code::kDisconnected, "the server refuses a ping");
  session_.trust.note_ping(asked, response.server_us, session_.group_clock->read());
  return {};
}

void GroupWatch::take_answer() {
  session_.link.keep_events();
  if (const auto server_us = session_.link.take_ping_answer()) {
    session_.trust.note_ping(asked_, *server_us, session_.group_clock->read());
  }
}

Status GroupWatch::compare_clocks(const Deadline& deadline) {
  take_answer();
  const ClockReading now = session_.group_clock->read();
  if (!session_.trust.wants_ping(now)) return {};
  if (!session_.trust.knows_clock()) return ping(now, deadline);
  if (session_.link.pings_in_background()) return {};
  if (!session_.link.ping_in_background()) {
    // Other requests have all credits: the difference that is known gets older, for now.
    if (session_.link.requests().in_flight() != 0) return {};
    return ping(now, deadline);
  }
  ++session_.stats.two_sided_requests;
  asked_ = now;
  return {};
}

// A line that was being written is READ again by the caller.
Status GroupWatch::look(const Deadline& deadline) {
  const auto line = session_.loader.look_at_group_line(deadline);
  if (line) {
    session_.trust.note_line(*line, session_.group_clock->read());
  } else if (line.error().code != Code::kBusy) {
    return std::unexpected(line.error());
  }
  return {};
}

Status GroupWatch::give_up(const Deadline& deadline) {
  session_.link.close();
  if (deadline.passed()) {
    return fail(Code::kTimeout, "the server did not prove in time to be the primary of its group");
  }
  return fail(Code::kDisconnected, "the server does not prove to be the primary of its group");
}

Status GroupWatch::believe(const Deadline& deadline) {
  const Nanos began = session_.group_clock->passed();
  const Deadline end(session_.clock, std::min(deadline.at(), session_.clock.now() + kPatience));
  Backoff pauses(kFirstPause, kLongestPause, static_cast<std::uint64_t>(began));
  while (!session_.trust.believes(began)) {
    if (!compare_clocks(end)) return give_up(deadline);
    if (!look(end)) return give_up(deadline);
    if (session_.trust.believes(began)) break;
    if (session_.trust.has_given_up()) return give_up(deadline);
    const Nanos again = session_.clock.now() + pauses.next();
    if (again >= end.at()) return give_up(deadline);
    session_.link.sleep_until(again);
    if (!session_.link.alive()) return give_up(deadline);
  }
  return {};
}

Status GroupWatch::await_replicated(Version version, const Deadline& deadline, Nanos patience_end) {
  Backoff pauses(kFirstPause, kLongestPause, version.bits);
  while (!session_.trust.is_replicated(version)) {
    if (!look(deadline)) return give_up(deadline);
    if (session_.trust.is_replicated(version)) break;
    if (!session_.trust.believes(session_.group_clock->passed())) {
      RKV_RETURN_IF_ERROR(believe(deadline));  // else a deposed primary is waited for
    }
    const Nanos again = session_.clock.now() + pauses.next();
    if (again >= patience_end) return fail(Code::kBusy, "the value is not replicated yet");
    if (again >= deadline.at()) {
      return fail(Code::kTimeout, "the value did not reach the group's other replicas in time");
    }
    session_.link.sleep_until(again);
  }
  return {};
}

}  // namespace rkv::client
