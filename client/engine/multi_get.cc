#include "client/engine/multi_get.h"

#include <algorithm>

namespace rkv::client {

void MultiGet::begin() {
  engine_.multi_gets.batch.clear();
  engine_.requester.reset_busy_wait();
  engine_.getter.mark_wait().begin();
  engine_.multi_gets.free_lanes.clear();
  for (Lane& lane : lanes()) {
    lane.op.release();
    lane.at = Need::kNothing;
    engine_.multi_gets.free_lanes.push_back(&lane);
  }
  lanes_at_[std::to_underlying(Need::kNothing)] = lanes().size();
}

void MultiGet::run() {
  begin();
  if (engine_.session.usable()) (void)engine_.connector.believe(deadline_);
  // The deadline holds even while there is progress, but need not be checked every round.
  constexpr unsigned kRoundsPerLook = 64;
  for (unsigned round = 1; finished_ < keys_.size(); ++round) {
    if (!engine_.session.usable()) {
      if (const Status usable = engine_.connector.ensure_connected(deadline_); !usable) {
        return fail_rest(usable.error());
      }
      mended();
    }
    const bool idle = !advance();
    if (!idle && round % kRoundsPerLook != 0) continue;
    if (deadline_.passed()) return time_out();
    if (!idle || !engine_.session.link.alive()) continue;
    if (const Nanos until = sleep_until(); until != 0) {
      engine_.session.link.wait(Deadline(engine_.session.clock, until));
    }
  }
}

bool MultiGet::advance() {
  const bool starts = may_start();
  if (starts) start_lanes();
  if (serves()) serve_waiting();
  const bool posted = post();
  return poll() != 0 || posted || starts;
}

// Restarts every GET in flight (GETOP-1).
void MultiGet::mended() {
  engine_.multi_gets.batch.clear();
  under_way_ = 0;
  look_at_ = 0;
  asks_for_marks_ = false;
  for (Lane& lane : lanes()) {
    if (lane.at == Need::kNothing) continue;
    lane.op.on_lost();
    lane.op.start();
    lane.pending = 0;
    follow(lane);
  }
}

// Tries one batch of kBatchKeys keys, so that the deadline and GETs in flight are handled in
// between.
void MultiGet::try_get_sync() {
  next_left_ = 0;
  left_count_ =
      engine_.getter.try_sync(keys_, next_key_, at_least_, visit_, target_, std::span(left_));
  const std::size_t tried = std::min(Getter::kBatchKeys, keys_.size() - next_key_);
  next_key_ += tried;
  finished_ += tried - left_count_;
}

void MultiGet::start_lanes() {
  const bool at_once = engine_.getter.reads_at_once();
  if (at_once && next_left_ == left_count_ && next_key_ < keys_.size()) try_get_sync();
  while (!engine_.multi_gets.free_lanes.empty()) {
    std::size_t index = 0;
    if (next_left_ < left_count_) {
      index = left_[next_left_++];
    } else if (!at_once && next_key_ < keys_.size()) {
      index = next_key_++;
    } else {
      return;
    }
    Lane& lane = *engine_.multi_gets.free_lanes.back();
    engine_.multi_gets.free_lanes.pop_back();
    lane.index = index;
    lane.pending = 0;
    lane.op.begin(as_bytes(keys_[index]), at_least_);
    if (lane.op.need() == Need::kConnection) lane.op.start();
    follow(lane);
  }
}

// Acts on what the lane's GET needs now.
void MultiGet::follow(Lane& lane) {
  --lanes_at_[std::to_underlying(lane.at)];
  lane.at = lane.op.need();
  ++lanes_at_[std::to_underlying(lane.at)];
  if (lane.at == Need::kReads) return queue_reads(lane);
  if (lane.at == Need::kNothing) finish(lane);
}

template <class Step>
void MultiGet::for_each_at(Need need, Step step) {
  for (Lane& lane : lanes()) {
    if (lane.at != need) continue;
    step(lane.op);
    follow(lane);
  }
}

void MultiGet::queue_reads(Lane& lane) {
  for (const ReadRequest& read : lane.op.reads()) {
    engine_.multi_gets.batch.push_back(
        Link::operation_of(read, engine_.session.link.local_key(), lane.number));
    ++lane.pending;
    ++under_way_;
  }
}

void MultiGet::serve_waiting() {
  std::size_t replies_kept = 0;
  if (at(Need::kReplicated) != 0) await_replicated_if_quiet();
  if (at(Need::kMark) != 0) {
    look_at_marks_if_quiet();
    replies_kept = static_cast<std::size_t>(
        std::ranges::count_if(lanes(), [](const Lane& lane) { return lane.op.keeps_reply(); }));
  }
  for (Lane& lane : lanes()) {
    if (lane.at == Need::kLargeBuffer) {
      if (lane.op.take_large_buffer()) follow(lane);
    } else if (lane.at == Need::kValueBuffer) {
      give_value_buffer(lane);
    } else if (lane.at == Need::kRequest) {
      ask_server(lane, replies_kept);
    }
  }
  if (at(Need::kMap) != 0) refresh_if_quiet();
}

// Blocks: nothing else is under way. What one lane waits for mostly covers the others.
void MultiGet::await_replicated_if_quiet() {
  for_each_at(Need::kReplicated, [](GetOp& op) { op.on_replicated(); });
  if (under_way_ != 0 || at(Need::kMap) != 0 || may_start()) return;
  for (Lane& lane : lanes()) {
    if (lane.at != Need::kReplicated) continue;
    const Status replicated =
        engine_.connector.await_replicated(lane.op.version(), blocking_deadline());
    if (!engine_.session.link.alive()) return;  // the driver, run() or FanOut, reconnects
    replicated ? lane.op.on_replicated() : lane.op.end_with(replicated.error());
    follow(lane);
  }
}

void MultiGet::check_marks(bool seen) {
  for_each_at(Need::kMark, [&](GetOp& op) { op.on_marks(seen); });
}

// Waiting lanes are checked again on every call, since any answer may have carried new marks.
void MultiGet::look_at_marks_if_quiet() {
  check_marks(false);
  if (at(Need::kMark) == 0 || at(Need::kReplicated) != 0 || under_way_ != 0 ||
      at(Need::kMap) != 0 || may_start())
    return;
  if (asks_for_marks_) return ask_for_marks();
  if (engine_.session.clock.now() < look_at_) return;
  const Status looked = engine_.session.loader.look_at_marks(blocking_deadline());
  if (!engine_.session.link.alive()) return;  // the driver, run() or FanOut, reconnects
  if (!looked && looked.error().code != Code::kBusy) {
    return for_each_at(Need::kMark, [&](GetOp& op) { op.end_with(looked.error()); });
  }
  check_marks(looked.has_value());
  look_at_ = engine_.session.clock.now() + engine_.getter.mark_wait().pause();
  asks_for_marks_ = at(Need::kMark) != 0 && engine_.getter.mark_wait().asks_after_look();
}

// No other request is in flight, so there is a credit.
void MultiGet::ask_for_marks() {
  const auto operation = engine_.session.link.requests().begin(
      {.opcode = MarkWait::request_for(at_least_)}, kMarksTag);
  if (!operation) return;
  asks_for_marks_ = false;
  engine_.multi_gets.batch.push_back(*operation);
  ++under_way_;
  ++engine_.session.stats.two_sided_requests;
}

// If other lanes have taken all the memory, the lane waits: they return it when they finish.
void MultiGet::give_value_buffer(Lane& lane) {
  const Status given = lane.op.take_value_buffer();
  if (!given && given.error().code == Code::kBusy) return;
  if (!given) lane.op.end_with(given.error());
  follow(lane);
}

void MultiGet::refresh_if_quiet() {
  if (under_way_ != 0) return;
  for (Lane& lane : lanes()) {
    if (lane.at != Need::kMap) continue;
    const Status refreshed = engine_.getter.refresh_map(lane.op.stale_map(), blocking_deadline());
    if (!engine_.session.link.alive()) return;  // the driver, run() or FanOut, reconnects
    lane.op.on_map(refreshed);
    follow(lane);
  }
}

void MultiGet::ask_server(Lane& lane, std::size_t replies_kept) {
  if (ask_at_ != 0) {
    if (engine_.session.clock.now() < ask_at_) return;
    ask_at_ = 0;
  }
  // Kept replies occupy the buffers that the next replies arrive in.
  Requests& requests = engine_.session.link.requests();
  if (requests.in_flight() + replies_kept >= engine_.session.options.requests_in_flight) return;
  const auto operation = requests.begin(lane.op.request(), lane.number);
  if (!operation) return;
  engine_.multi_gets.batch.push_back(*operation);
  ++under_way_;
  ++engine_.session.stats.two_sided_requests;
  lane.op.on_sent();
  follow(lane);
}

// Returns true if anything was posted.
bool MultiGet::post() {
  if (engine_.multi_gets.batch.empty()) return false;
  const auto taken = engine_.session.link.post(engine_.multi_gets.batch);
  if (!taken) {
    engine_.multi_gets.batch.clear();
    return true;  // the driver notices that the link is dead
  }
  engine_.multi_gets.batch.erase(
      engine_.multi_gets.batch.begin(),
      engine_.multi_gets.batch.begin() + static_cast<std::ptrdiff_t>(*taken));
  return *taken != 0;
}

std::size_t MultiGet::poll() {
  if (!engine_.session.link.alive()) return 1;
  const auto events = engine_.session.link.poll();
  for (const Event& event : events) {
    --under_way_;
    if (event.kind == Event::Kind::kReply) {
      on_reply(Reply(engine_.session.link, event), event.context);
      continue;
    }
    Lane& lane = lanes()[event.context];
    if (--lane.pending != 0) continue;
    lane.op.on_reads();
    follow(lane);
  }
  if (!events.empty()) engine_.connector.progressed();
  return events.size();
}

void MultiGet::on_reply(Reply reply, std::uint64_t tag) {
  const Response& response = reply.response();
  engine_.session.learn_marks(response);
  // As in Getter::await_mark(), the error of a refused request is ignored.
  if (tag == kMarksTag) return check_marks(true);
  Lane& lane = lanes()[tag];
  if (Requester::is_later(Opcode::kGet, static_cast<Code>(response.code))) {
    engine_.session.refusal = std::string(as_text(response.value));
    ask_at_ = engine_.session.clock.now() + engine_.requester.busy_wait(response);
    lane.op.on_later();
  } else if (response.code != 0) {
    lane.op.on_refused(engine_.requester.refused(response));
  } else {
    lane.op.on_reply(std::move(reply));
  }
  follow(lane);
}

// Until a busy server may be asked again, or the marks may be checked again.
Nanos MultiGet::sleep_until() const {
  const bool looks = at(Need::kMark) != 0 && look_at_ != 0 && under_way_ == 0;
  if (may_start() || (under_way_ == 0 && ask_at_ == 0 && !looks)) return 0;
  Nanos until = deadline_.at();
  if (ask_at_ != 0) until = std::min(until, ask_at_);
  if (looks) until = std::min(until, look_at_);
  return until;
}

void MultiGet::time_out() {
  // Operations in flight may still land: closing the link quarantines their buffers (LINK-1).
  if (under_way_ != 0) engine_.session.link.close();
  for_each_at(Need::kMark, [](GetOp& op) { op.on_no_mark(); });
  fail_rest({.code = Code::kTimeout, .text = "the server did not answer in time"});
}

void MultiGet::finish(Lane& lane) {
  visit_(target_, lane.index, lane.op.result());
  lane.op.release();
  engine_.multi_gets.free_lanes.push_back(&lane);
  ++finished_;
}

void MultiGet::fail_rest(const Error& error) {
  for (Lane& lane : lanes()) {
    if (lane.at == Need::kNothing) continue;
    lane.op.end_with(error);
    follow(lane);
  }
  const auto fail_one = [&](std::size_t index) {
    ++engine_.session.stats.gets;
    visit_(target_, index, std::unexpected(error));
    ++finished_;
  };
  while (next_left_ < left_count_)
    fail_one(left_[next_left_++]);
  while (next_key_ < keys_.size())
    fail_one(next_key_++);
}

}  // namespace rkv::client
