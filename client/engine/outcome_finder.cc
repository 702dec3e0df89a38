#include "client/engine/outcome_finder.h"

#include <algorithm>
#include <array>

namespace rkv::client {

namespace {

// Pause between two questions while the server has no room for the answer.
constexpr Nanos kAskOutcomeAgain = 2 * kNanosPerMs;

}  // namespace

Error OutcomeFinder::not_known() {
  ++session_.stats.outcomes_asked;
  ++session_.stats.outcomes_unknown;
  return {.code = Code::kDisconnected,
          .write = WriteOutcome::kMayHaveHappened,
          .text = "the connection was lost before the answer came"};
}

Request OutcomeFinder::question(const SentWrite& write,
                                std::span<std::byte, kWriteIdBytes> value) const {
  encode(write.id, value);
  Request request{.opcode = Opcode::kOutcome};
  // 0 would mean that the write was sent to this server. No version is below 1.
  if (!is_of_this_server(write)) request.expected = std::max(write.since, Version{1});
  request.value = value;
  return request;
}

Result<Response> answer_of_write(const Response& outcome, Opcode opcode) {
  Response answer = outcome;
  answer.opcode = opcode;
  RKV_RETURN_IF_ERROR(check_response(answer));
  return answer;
}

SentWrite OutcomeFinder::last_sent() const {
  const ConnectAccept& accept = session_.link.accept();
  return {.id = {.session = accept.session, .sequence = session_.link.requests().last_sequence()},
          .epoch = accept.epoch,
          .in_group = accept.in_group,
          .group = accept.store,
          .since = session_.trust.replicated()};
}

OutcomeFinder::Fate OutcomeFinder::fate_in(const Response& answer) {
  if (answer.opcode != Opcode::kOutcome) return Fate::kNotKnown;  // not known to the server
  const auto code = static_cast<Code>(answer.code);
  if (code == Code::kBusy) return Fate::kLater;
  const bool applied = answer.code == 0 || (answer.flags & Response::kMayHaveHappened) != 0;
  if (!applied && code != Code::kNotFound) return Fate::kNotKnown;
  ++session_.stats.outcomes_asked;
  if (!applied) return Fate::kNotApplied;
  ++session_.stats.outcomes_recovered;
  return Fate::kAnswered;
}

Result<Reply> OutcomeFinder::ask(const SentWrite& write, const Deadline& deadline) {
  std::array<std::byte, kWriteIdBytes> value;
  for (;;) {
    RKV_RETURN_IF_ERROR(connector_.make_ready(deadline));
    if (!may_be_known(write)) return fail(Code::kStale, "the server has restarted");
    auto reply = session_.link.call(question(write, value), deadline);
    if (reply || reply.error().code != Code::kDisconnected) return reply;
  }
}

Result<std::optional<Reply>> OutcomeFinder::find(const SentWrite& write, Opcode opcode,
                                                 const Deadline& deadline) {
  for (;;) {
    auto reply = ask(write, deadline);
    if (!reply) break;
    ++session_.stats.two_sided_requests;
    connector_.progressed();
    session_.learn_marks(reply->response());
    const Fate fate = fate_in(reply->response());
    if (fate == Fate::kNotApplied) return std::optional<Reply>();
    if (fate == Fate::kAnswered) {
      const auto answer = answer_of_write(reply->response(), opcode);
      if (answer) return std::optional<Reply>(Reply(std::move(*reply), *answer));
      session_.link.break_off(answer.error().text);
      break;
    }
    const Nanos again = session_.clock.now() + kAskOutcomeAgain;
    if (fate == Fate::kNotKnown || again >= deadline.at()) break;
    session_.link.sleep_until(again);
  }
  return std::unexpected(not_known());
}

}  // namespace rkv::client
