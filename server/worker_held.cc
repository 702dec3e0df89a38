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
                                       .number = {}});
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

void Worker::answer_held() {
  if (held_.empty()) [[likely]]
    return;
  waiting_.exchange(true, std::memory_order_acq_rel);  // before the marks are looked at (K5)
  const bool failed = log_.failed();
  std::size_t kept = 0;
  for (Held& held : held_) {
    Session& session = *held.session;
    if (session.ending) continue;
    const bool done = handler_.is_reached(held.level, held.through);
    if ((!done && !failed) || !has_room_for_reply(session)) {
      held_[kept++] = held;
      continue;
    }
    Response response = done ? held.response : RequestHandler::disk_failed(held.response);
    if (done) response.value = Bytes(held.number).first(response.value.size());
    (void)reply(session, response);
    count(response, held.level);
  }
  held_.resize(kept);
  if (kept == 0) waiting_.store(false, std::memory_order_relaxed);  // spares a wake-up
}

}  // namespace rkv::server
