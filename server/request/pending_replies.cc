#include "server/request/pending_replies.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/check.h"

namespace rkv::server {

using AwaitMark = RequestHandler::AwaitMark;
using AwaitBackup = RequestHandler::AwaitBackup;
using AwaitSweep = RequestHandler::AwaitSweep;
using AwaitPage = RequestHandler::AwaitPage;
using AwaitRevocation = RequestHandler::AwaitRevocation;
using AwaitRound = RequestHandler::AwaitRound;
using AwaitGroup = RequestHandler::AwaitGroup;

PendingReplies::PendingReplies(Parts parts, std::size_t capacity) : parts_(std::move(parts)) {
  held_.reserve(capacity);
}

void PendingReplies::add(Session& session, const RequestHandler::Answer& answer, Nanos taken) {
  Held& held = held_.emplace_back();
  held.session = &session;
  held.taken = taken;
  await(held, answer);
}

// Copies what outlives this call: the next request reuses the handler's buffer, and the next
// message reuses the receive buffer.
void PendingReplies::await(Held& held, const RequestHandler::Answer& answer) {
  const Bytes value = answer.response.value;
  held.response = answer.response;
  const auto* const awaited = std::get_if<RequestHandler::Awaited>(&answer.next);
  held.awaited = awaited == nullptr ? std::nullopt : std::optional(*awaited);
  if (awaited == nullptr) return;  // the value is a static text: no copy
  if (std::holds_alternative<AwaitSweep>(*awaited)) held.name = as_text(value);
  const auto* const mark = std::get_if<AwaitMark>(awaited);
  if (mark == nullptr) return;
  if (value.size() <= held.number.size()) {
    std::ranges::copy(value, held.number.begin());
  } else {
    held.results.assign(value.begin(), value.end());
  }
  held.packed.assign(answer.packed.begin(), answer.packed.end());
  if (mark->level == Durability::kMemory) return;  // the replicator needs no request
  std::uint64_t& wanted = mark->level == Durability::kWal ? wal_wanted_ : sync_wanted_;
  wanted = std::max(wanted, mark->through);
}

void PendingReplies::continue_after_sweep(Held& held, const AwaitSweep& sweep) {
  const auto swept = parts_.counter_flusher->outcome(sweep.number);
  if (!swept) return;
  const std::string value = std::move(held.name);
  await(held, parts_.handler.after_sweep(held.response, as_bytes(value), *swept));
}

// At most one request per level: all writes of a turn share one write and one sync.
void PendingReplies::ask_for_marks() {
  if (wal_wanted_ != 0) parts_.make_durable(Durability::kWal, std::exchange(wal_wanted_, 0));
  if (sync_wanted_ != 0) parts_.make_durable(Durability::kSync, std::exchange(sync_wanted_, 0));
}

bool PendingReplies::is_over(const Held& held, bool disk_failed) const {
  if (!held.awaited) return true;
  if (const auto* const mark = std::get_if<AwaitMark>(&*held.awaited))
    // A failing disk does not keep a write from being replicated.
    return (disk_failed && mark->level != Durability::kMemory) ||
           parts_.handler.is_reached(mark->level, mark->through);
  if (const auto* const backup = std::get_if<AwaitBackup>(&*held.awaited))
    return backup->backup->done();
  if (const auto* const page = std::get_if<AwaitPage>(&*held.awaited)) return page->page->done();
  if (const auto* const revocation = std::get_if<AwaitRevocation>(&*held.awaited))
    return revocation->revocation->done();
  if (const auto* const round = std::get_if<AwaitRound>(&*held.awaited))
    return parts_.handler.is_over(*round);
  if (const auto* const group = std::get_if<AwaitGroup>(&*held.awaited)) return group->task->done();
  return false;  // a sweep: continue_after_sweep() replaces it
}

// The value of the result lies in `held` or in its page. REQUIRES: is_over().
Response PendingReplies::answer_to(Held& held) const {
  if (!held.awaited) return held.response;
  if (const auto* const backup = std::get_if<AwaitBackup>(&*held.awaited))
    return RequestHandler::backed_up(held.response, *backup->backup);
  if (const auto* const page = std::get_if<AwaitPage>(&*held.awaited))
    return parts_.handler.scanned(held.response, *page->page);
  if (const auto* const revocation = std::get_if<AwaitRevocation>(&*held.awaited)) {
    store_le(held.number.data(), revocation->revocation->sessions());
    Response response = held.response;
    response.value = Bytes(held.number).first(kRevokeAnswerBytes);
    return response;
  }
  if (std::holds_alternative<AwaitRound>(*held.awaited)) return held.response;
  if (const auto* const group = std::get_if<AwaitGroup>(&*held.awaited))
    return RequestHandler::changed(held.response, *group->task);
  const auto& mark = std::get<AwaitMark>(*held.awaited);
  if (!parts_.handler.is_reached(mark.level, mark.through)) {
    return parts_.handler.disk_failed(held.response);
  }
  Response response = held.response;
  const bool results = !held.results.empty();
  response.value = results ? Bytes(held.results) : Bytes(held.number).first(response.value.size());
  return response;
}

// How a reply is counted.
Answered PendingReplies::answered(const Held& held) {
  const auto* const mark = held.awaited ? std::get_if<AwaitMark>(&*held.awaited) : nullptr;
  if (mark == nullptr) return {};
  return {.level = mark->level, .writes = mark->writes, .packed = held.packed};
}

void PendingReplies::answer() {
  const bool failed = parts_.log.failed();
  std::size_t kept = 0;
  some_for_buffers_ = false;
  for (Held& held : held_) {
    Session& session = *held.session;
    if (session.ending) continue;
    if (const auto* const sweep = held.awaited ? std::get_if<AwaitSweep>(&*held.awaited) : nullptr)
      continue_after_sweep(held, *sweep);
    const bool has_room = is_over(held, failed) && parts_.replies.has_room(session);
    // send() fails if no large buffer is free for a page or the results of a pack.
    const bool sent =
        has_room && parts_.replies.send(session, answer_to(held), held.taken, answered(held));
    if (sent) continue;
    some_for_buffers_ = some_for_buffers_ || has_room;
    if (&held != &held_[kept]) held_[kept] = std::move(held);
    ++kept;
  }
  held_.resize(kept);
  ask_for_marks();  // for flushes and backups whose sweep is over
}

void PendingReplies::drop(const Session& session) {
  std::erase_if(held_, [&](const Held& held) { return held.session == &session; });
}

bool PendingReplies::delays_stop() const {
  return std::ranges::any_of(held_, [](const Held& held) {
    const bool is_unbounded = held.response.opcode == Opcode::kBackup ||
                              (held.awaited && std::holds_alternative<AwaitRound>(*held.awaited)) ||
                              (held.awaited && std::holds_alternative<AwaitGroup>(*held.awaited));
    return !is_unbounded && !held.session->ending;
  });
}

}  // namespace rkv::server
