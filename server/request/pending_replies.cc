#include "server/request/pending_replies.h"

#include <algorithm>
#include <utility>

namespace rkv::server {

using AwaitMark = RequestHandler::AwaitMark;
using AwaitSweep = RequestHandler::AwaitSweep;

PendingReplies::PendingReplies(Parts parts, std::size_t capacity) : parts_(std::move(parts)) {
  held_.reserve(capacity);
}

void PendingReplies::add(Session& session, RequestHandler::Answer&& answer, Nanos taken) {
  Held& held = held_.emplace_back();
  held.session = &session;
  held.taken = taken;
  await(held, std::move(answer));
}

// Copies all that must outlive this call: the next request reuses the handler's buffer, and the
// next message reuses the receive buffer.
void PendingReplies::await(Held& held, RequestHandler::Answer&& answer) {
  held.response = answer.response;
  if (std::holds_alternative<AwaitMark>(answer.next)) return await_mark(held, answer);
  if (const auto* const sweep = std::get_if<AwaitSweep>(&answer.next)) {
    held.name = as_text(answer.response.value);
    held.response.value = {};  // it lies in the receive buffer
    held.awaited = *sweep;
  } else if (auto* const other = std::get_if<std::unique_ptr<Awaited>>(&answer.next)) {
    held.awaited = std::move(*other);
  } else {
    held.awaited = RequestHandler::Reply{};  // its value is a static text
  }
}

void PendingReplies::await_mark(Held& held, const RequestHandler::Answer& answer) {
  const Bytes value = answer.response.value;
  if (value.size() <= held.number.size()) {
    std::ranges::copy(value, held.number.begin());
  } else {
    held.results.assign(value.begin(), value.end());
  }
  held.packed.assign(answer.packed.begin(), answer.packed.end());
  const auto& mark = std::get<AwaitMark>(answer.next);
  held.awaited = mark;
  if (mark.level == Durability::kMemory) return;  // the replicator needs no request
  std::uint64_t& wanted = mark.level == Durability::kWal ? wal_wanted_ : sync_wanted_;
  wanted = std::max(wanted, mark.through);
}

void PendingReplies::continue_after_sweep(Held& held) {
  const auto* const sweep = std::get_if<AwaitSweep>(&held.awaited);
  if (sweep == nullptr) return;
  const auto swept = parts_.counter_flusher->outcome(sweep->number);
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
  if (const auto* const mark = std::get_if<AwaitMark>(&held.awaited))
    // A failing disk does not keep a write from being replicated. If another replica takes over,
    // its clients ask that one.
    return (disk_failed && mark->level != Durability::kMemory) ||
           parts_.handler.is_reached(mark->level, mark->through);
  if (const auto* const other = std::get_if<std::unique_ptr<Awaited>>(&held.awaited))
    return (*other)->done();
  return std::holds_alternative<RequestHandler::Reply>(held.awaited);  // no sweep is over here
}

// The value of the result lies in `held`. REQUIRES: is_over().
Response PendingReplies::answer_to(const Held& held) const {
  if (const auto* const mark = std::get_if<AwaitMark>(&held.awaited))
    return answer_at_mark(held, *mark);
  if (const auto* const other = std::get_if<std::unique_ptr<Awaited>>(&held.awaited))
    return (*other)->answer(held.response);
  return held.response;
}

Response PendingReplies::answer_at_mark(const Held& held, const AwaitMark& mark) const {
  if (!parts_.handler.is_reached(mark.level, mark.through)) {
    return parts_.handler.disk_failed(held.response);
  }
  if (parts_.handler.falls_short(held.response, held.packed)) [[unlikely]]
    return RequestHandler::short_of_copies(held.response);
  Response response = held.response;
  const bool results = !held.results.empty();
  response.value = results ? Bytes(held.results) : Bytes(held.number).first(response.value.size());
  return response;
}

// How a reply is counted.
Answered PendingReplies::answered(const Held& held) {
  const auto* const mark = std::get_if<AwaitMark>(&held.awaited);
  if (mark == nullptr) return {};
  return {.level = mark->level, .writes = mark->writes, .packed = held.packed};
}

void PendingReplies::answer() {
  const bool failed = parts_.log.has_failed_for_good();
  std::size_t kept = 0;
  some_for_buffers_ = false;
  for (Held& held : held_) {
    Session& session = *held.session;
    if (session.ending) continue;
    continue_after_sweep(held);
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

// A backup may take as long as the disk needs, and so may the sweep before it.
bool PendingReplies::delays_stop() const {
  return std::ranges::any_of(held_, [](const Held& held) {
    const auto* const other = std::get_if<std::unique_ptr<Awaited>>(&held.awaited);
    const bool delays =
        other != nullptr ? (*other)->delays_stop() : held.response.opcode != Opcode::kBackup;
    return delays && !held.session->ending;
  });
}

}  // namespace rkv::server
