// Worker: replies held back until what they promise has happened (K5, K6), and the end of the
// worker.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "server/request/worker.h"

namespace rkv::server {

namespace {
// Time limits when the worker stops. kAnswersMs: for the awaited marks, which the applier is asked
// to hurry. kArrivalMs: for replies to arrive; the host of a dead client never acknowledges them.
// kGoodbyeMs: for all connections to end.
constexpr std::int64_t kAnswersMs = 5000;
constexpr std::int64_t kArrivalMs = 1000;
constexpr std::int64_t kGoodbyeMs = 3000;
}  // namespace

void Worker::hold(Session& session, const RequestHandler::Answer& answer) {
  Held& held = held_.emplace_back();
  held.session = &session;
  held.taken = taken_;
  await(held, answer);
}

// Copies what outlives this call: the next request reuses the handler's buffer, and the next
// message reuses the receive buffer.
void Worker::await(Held& held, const RequestHandler::Answer& answer) {
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
  RKV_CHECK(value.size() <= held.number.size(),
            "an answer that awaits a mark has a number at most");
  std::ranges::copy(value, held.number.begin());
  std::uint64_t& wanted = answer.level == Durability::kWal ? wal_wanted_ : sync_wanted_;
  wanted = std::max(wanted, answer.through);
}

void Worker::go_on_after_sweep(Held& held) {
  const auto swept = counter_flusher_->outcome(held.through);
  if (!swept) return;
  const std::string value = std::move(held.name);
  await(held, handler_.after_sweep(held.response, as_bytes(value), *swept));
}

// At most one request per level: all writes of this turn share one write and one sync.
void Worker::ask_for_marks() {
  if (wal_wanted_ != 0) make_durable_(Durability::kWal, std::exchange(wal_wanted_, 0));
  if (sync_wanted_ != 0) make_durable_(Durability::kSync, std::exchange(sync_wanted_, 0));
}

bool Worker::is_over(const Held& held, bool disk_failed) const {
  if (held.ready) return true;
  if (held.sweeping) return false;
  if (held.backup != nullptr) return held.backup->done();
  if (held.page != nullptr) return held.page->done();
  return disk_failed || handler_.is_reached(held.level, held.through);
}

// The value of the result lies in `held` or in its page.
Response Worker::answer_to(Held& held) const {
  if (held.ready) return held.response;
  if (held.backup != nullptr) return RequestHandler::backed_up(held.response, *held.backup);
  if (held.page != nullptr) return handler_.scanned(held.response, *held.page);
  if (!handler_.is_reached(held.level, held.through)) {
    return handler_.disk_failed(held.response);
  }
  Response response = held.response;
  response.value = Bytes(held.number).first(response.value.size());
  return response;
}

void Worker::answer_held() {
  const bool failed = log_.failed();
  std::size_t kept = 0;
  for (Held& held : held_) {
    Session& session = *held.session;
    if (session.ending) continue;
    if (held.sweeping) go_on_after_sweep(held);
    const bool ready = is_over(held, failed) && has_room_for_reply(session);
    const Response response = ready ? answer_to(held) : Response{};
    if (ready && reply(session, response)) {  // false: no large buffer is free for a page
      taken_ = held.taken;
      count(response, held.level);
      continue;
    }
    if (&held != &held_[kept]) held_[kept] = std::move(held);
    ++kept;
  }
  held_.resize(kept);
  ask_for_marks();  // for flushes and backups whose sweep is over
}

void Worker::answer_waiters() {
  if (held_.empty() && awaiting_.empty()) [[likely]]
    return;
  handler_.set_time(clock_.now());  // a wake-up without completions has not set it
  waiting_.exchange(true, std::memory_order_acq_rel);  // before the marks are read (K5)
  const std::size_t free_before = long_.free();
  answer_loaded();
  // Nothing else may start a turn in which a waiting long request finds the freed buffer.
  if (long_.free() > free_before) retry_waiting();
  answer_held();
  if (held_.empty() && awaiting_.empty()) {
    waiting_.store(false, std::memory_order_relaxed);  // saves a wake-up
  }
}

// Backups are not waited for: one may take as long as the disk needs.
bool Worker::has_held() const {
  return std::ranges::any_of(held_, [](const Held& held) {
    return held.response.opcode != Opcode::kBackup && !held.session->ending;
  });
}

bool Worker::has_unsent() const {
  return std::ranges::any_of(sessions_, [](const auto& session) {
    return !session->ending && session->in_flight > session->unsignaled;
  });
}

template <class Condition>
void Worker::turn_while(Condition condition, std::int64_t at_most_ms) {
  const Deadline deadline = Deadline::after_ms(clock_, at_most_ms);
  for (;;) {
    const std::size_t completions = poll_once();
    if (!condition() || deadline.passed()) return;
    if (completions == 0) queue_->wait(Deadline::after_ms(clock_, 10));
  }
}

void Worker::finish() {
  collect_mail();
  taking_ = false;
  for (const Waiting& waiting : waiting_requests_)
    release(waiting.receive_buffer);
  waiting_requests_.clear();
  for (const Awaiting& awaiting : awaiting_)
    release(awaiting.receive_buffer);
  awaiting_.clear();
  turn_while([this] { return has_held(); }, kAnswersMs);
  turn_while([this] { return has_unsent(); }, kArrivalMs);
  for (const auto& session : sessions_)
    drop(*session, std::nullopt);
  turn_while([this] { return !sessions_.empty(); }, kGoodbyeMs);
  for (const auto& session : sessions_)
    session->connection.reset();  // (F1)
  large_put_receiver_.drop_all(nullptr, [](std::uint32_t) {});
  fetched_.clear();
  sessions_.clear();
}

}  // namespace rkv::server
