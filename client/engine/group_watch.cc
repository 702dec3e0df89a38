#include "client/engine/group_watch.h"

#include <algorithm>
#include <utility>

#include "client/link/retry_policy.h"

namespace rkv::client {

namespace {
constexpr Nanos kFirstPause = kNanosPerMs / 10;
constexpr Nanos kLongestPause = 10 * kNanosPerMs;

// Makes a flag true while this object exists.
class Marked {
 public:
  explicit Marked(bool& mark) : mark_(mark), before_(std::exchange(mark, true)) {}
  ~Marked() { mark_ = before_; }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;

 private:
  bool& mark_;
  const bool before_;
};
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
    // Other requests use all credits: for now the known difference gets older.
    if (session_.link.requests().in_flight() != 0) return {};
    return ping(now, deadline);
  }
  ++session_.stats.two_sided_requests;
  asked_ = now;
  return {};
}

// If the line was being written, the caller READs it again.
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
  const Marked asks(asks_);
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
  const Marked asks(asks_);
  Backoff pauses(kFirstPause, kLongestPause, version.bits);
  while (!session_.trust.is_replicated(version)) {
    const Nanos patience = session_.clock.now() + kPatience;
    if (!look({session_.clock, std::min(deadline.at(), patience)})) return give_up(deadline);
    if (session_.trust.is_replicated(version)) break;
    if (!session_.trust.believes(session_.group_clock->passed())) {
      RKV_RETURN_IF_ERROR(believe(deadline));  // do not wait for a deposed primary
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

void GroupWatch::begin() {
  questions_ = 0;
  tick_ = 0;
  passed_ = session_.link.bytes_passed();
  session_.link.set_watch(this);
}

// A line that was being written shows nothing: the next look does.
bool GroupWatch::has_news() {
  const std::uint64_t passed = session_.link.bytes_passed();
  const bool has_moved = passed - std::exchange(passed_, passed) >= kProgressBytes;
  const auto bytes = session_.link.take_look();
  const auto line = bytes ? session_.map.group_line(*bytes) : std::nullopt;
  if (!line) return has_moved;
  session_.trust.note_line(*line, session_.group_clock->read());
  return line->tick != std::exchange(tick_, line->tick) || has_moved;
}

bool GroupWatch::may_wait() {
  if (asks_) return true;
  questions_ = has_news() ? 0 : questions_ + 1;
  if (questions_ >= kQuestions) {
    session_.servers.distrusted();
    session_.refusal = session_.servers.tried();
    return false;
  }
  if (const auto line = session_.map.root(kGroupLineOffset, Link::kLookBytes))
    session_.link.look_in_background(*line);
  return true;
}

}  // namespace rkv::client
