// The worker's part in durability: answers held back until a mark has passed what they promise (K5,
// K6).
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "server/worker.h"

namespace rkv::server {

void Worker::hold(Session& session, const RequestHandler::Answer& answer) {
  Held& held = held_.emplace_back(Held{.session = &session,
                                       .response = answer.response,
                                       .level = answer.level,
                                       .through = answer.through,
                                       .number = {},
                                       .backup = answer.backup});
  if (answer.backup != nullptr) return;
  // The handler's buffer serves the next request.
  const Bytes value = answer.response.value;
  RKV_CHECK(value.size() <= held.number.size(), "an answer that is held has a number at most");
  std::ranges::copy(value, held.number.begin());
  std::uint64_t& wanted = answer.level == Durability::kWal ? wal_wanted_ : sync_wanted_;
  wanted = std::max(wanted, answer.through);
}

// Once for all that this turn has taken: they share one write and one sync.
void Worker::ask_for_marks() {
  if (wal_wanted_ != 0) make_durable_(Durability::kWal, std::exchange(wal_wanted_, 0));
  if (sync_wanted_ != 0) make_durable_(Durability::kSync, std::exchange(sync_wanted_, 0));
}

bool Worker::is_over(const Held& held, bool disk_failed) const {
  if (held.backup != nullptr) return held.backup->done();
  return disk_failed || handler_.is_reached(held.level, held.through);
}

// Its value is in `held`.
Response Worker::answer_to(Held& held) const {
  if (held.backup != nullptr) return RequestHandler::backed_up(held.response, *held.backup);
  if (!handler_.is_reached(held.level, held.through)) {
    return RequestHandler::disk_failed(held.response);
  }
  Response response = held.response;
  response.value = Bytes(held.number).first(response.value.size());
  return response;
}

void Worker::answer_held() {
  if (held_.empty()) [[likely]]
    return;
  waiting_.exchange(true, std::memory_order_acq_rel);  // before the marks are looked at (K5)
  const bool failed = log_.failed();
  std::size_t kept = 0;
  for (Held& held : held_) {
    Session& session = *held.session;
    if (session.ending) continue;
    if (!is_over(held, failed) || !has_room_for_reply(session)) {
      if (&held != &held_[kept]) held_[kept] = std::move(held);
      ++kept;
      continue;
    }
    const Response response = answer_to(held);
    (void)reply(session, response);
    count(response, held.level);
  }
  held_.resize(kept);
  if (kept == 0) waiting_.store(false, std::memory_order_relaxed);  // spares a wake-up
}

}  // namespace rkv::server
