#include "server/request/pending_replies.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace rkv::server {

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
  held.level = answer.level;
  held.through = answer.through;
  held.backup = answer.backup;
  held.page = answer.page;
  held.ready = answer.next == RequestHandler::Next::kReply;  // its value is a static text: no copy
  held.sweeping = answer.next == RequestHandler::Next::kAwaitSweep;
  if (held.sweeping) held.name = as_text(value);
  if (answer.next != RequestHandler::Next::kAwaitMark) return;
  held.writes = answer.writes;
  if (value.size() <= held.number.size()) {
    std::ranges::copy(value, held.number.begin());
  } else {
    held.results.assign(value.begin(), value.end());
  }
  held.packed.assign(answer.packed.begin(), answer.packed.end());
  std::uint64_t& wanted = answer.level == Durability::kWal ? wal_wanted_ : sync_wanted_;
  wanted = std::max(wanted, answer.through);
}

void PendingReplies::continue_after_sweep(Held& held) {
  const auto swept = parts_.counter_flusher->outcome(held.through);
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
  if (held.ready) return true;
  if (held.sweeping) return false;
  if (held.backup != nullptr) return held.backup->done();
  if (held.page != nullptr) return held.page->done();
  return disk_failed || parts_.handler.is_reached(held.level, held.through);
}

// The value of the result lies in `held` or in its page.
Response PendingReplies::answer_to(Held& held) const {
  if (held.ready) return held.response;
  if (held.backup != nullptr) return RequestHandler::backed_up(held.response, *held.backup);
  if (held.page != nullptr) return parts_.handler.scanned(held.response, *held.page);
  if (!parts_.handler.is_reached(held.level, held.through)) {
    return parts_.handler.disk_failed(held.response);
  }
  Response response = held.response;
  const bool results = !held.results.empty();
  response.value = results ? Bytes(held.results) : Bytes(held.number).first(response.value.size());
  return response;
}

void PendingReplies::answer() {
  const bool failed = parts_.log.failed();
  std::size_t kept = 0;
  some_for_buffers_ = false;
  for (Held& held : held_) {
    Session& session = *held.session;
    if (session.ending) continue;
    if (held.sweeping) continue_after_sweep(held);
    const bool has_room = is_over(held, failed) && parts_.replies.has_room(session);
    // send() fails if no large buffer is free for a page or the results of a pack.
    const bool sent =
        has_room &&
        parts_.replies.send(session, answer_to(held), held.taken,
                            {.level = held.level, .writes = held.writes, .packed = held.packed});
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
    return held.response.opcode != Opcode::kBackup && !held.session->ending;
  });
}

}  // namespace rkv::server
