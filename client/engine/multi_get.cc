#include "client/engine/multi_get.h"

#include <algorithm>

#include "common/check.h"

namespace rkv::client {

void MultiGet::begin() {
  engine_.multi_gets.batch.clear();
  engine_.requester.reset_busy_wait();
  engine_.getter.mark_wait().begin();
  engine_.multi_gets.free_lanes.clear();
  for (Lane& lane : engine_.getter.lanes()) {
    engine_.getter.free_large(lane);
    lane.reply.reset();
    lane.state = State::kFree;
    engine_.multi_gets.free_lanes.push_back(&lane);
  }
}

void MultiGet::run() {
  begin();
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
  if (waiting_ != 0) serve_waiting();
  const bool posted = post();
  return poll() != 0 || posted || starts;
}

// Restarts every GET in flight (E1).
void MultiGet::mended() {
  engine_.multi_gets.batch.clear();
  under_way_ = waiting_ = map_waiting_ = mark_waiting_ = replies_kept_ = 0;
  look_at_ = 0;
  asks_for_marks_ = false;
  for (Lane& lane : engine_.getter.lanes()) {
    if (lane.state == State::kFree) continue;
    if (lane.state != State::kNeedsMark) engine_.getter.count_reads(lane.machine);
    lane.reply.reset();
    restart(lane);
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
    ++engine_.session.stats.gets;
    if (const Status valid = check_key(as_bytes(keys_[index])); !valid) {
      visit_(target_, index, std::unexpected(valid.error()));
      ++finished_;
      continue;
    }
    Lane& lane = *engine_.multi_gets.free_lanes.back();
    engine_.multi_gets.free_lanes.pop_back();
    lane.index = index;
    lane.asked = 0;
    restart(lane);
  }
}

void MultiGet::restart(Lane& lane) {
  engine_.getter.free_large(lane);
  lane.pending = 0;
  advance(lane, lane.machine.start(as_bytes(keys_[lane.index]),
                                   engine_.session.arena.get_memory(number_of(lane))));
}

void MultiGet::queue_reads(Lane& lane) {
  const std::size_t number = number_of(lane);
  for (const ReadRequest& read : lane.machine.reads()) {
    engine_.multi_gets.batch.push_back(
        Link::operation_of(read, engine_.session.link.local_key(), number));
    ++lane.pending;
    ++under_way_;
  }
}

void MultiGet::advance(Lane& lane, Next next) {
  lane.next = next;
  lane.state = State::kReading;
  switch (next) {
    case Next::kRead:
      return queue_reads(lane);
    case Next::kFound:
      engine_.getter.count_reads(lane.machine);
      return found(lane, found_view(lane.machine.fields(), engine_.session.map.marks()));
    case Next::kMissing:
      engine_.getter.count_missing_by_read(lane.asked != 0);
      engine_.getter.count_reads(lane.machine);
      return finish(lane, fail(Code::kNotFound, nullptr));
    case Next::kTwoSided:
      if (++lane.asked > Getter::kMaxAsked) {
        engine_.getter.count_reads(lane.machine);
        return finish(lane, fail(Code::kBusy, Getter::kRewritten));
      }
      lane.state = State::kNeedsRequest;
      break;
    case Next::kValueBuffer:
      lane.state = State::kNeedsValueBuffer;
      break;
    case Next::kLargeBuffer:
      lane.state = State::kNeedsBuffer;
      break;
    case Next::kRefreshExtents:
    case Next::kRefreshDirectory:
      lane.state = State::kNeedsMap;
      ++map_waiting_;
      break;
  }
  ++waiting_;
}

void MultiGet::serve_waiting() {
  if (mark_waiting_ != 0) look_at_marks_if_quiet();
  for (Lane& lane : engine_.getter.lanes()) {
    if (lane.state == State::kNeedsBuffer) {
      lane.large = engine_.session.arena.take_large();
      if (lane.large.empty()) continue;
      --waiting_;
      lane.machine.give_buffer(lane.large);
      advance(lane, lane.machine.step());
    } else if (lane.state == State::kNeedsValueBuffer) {
      give_value_buffer(lane);
    } else if (lane.state == State::kNeedsRequest) {
      ask_server(lane);
    }
  }
  if (map_waiting_ != 0) refresh_if_quiet();
}

// `value` lies in the lane's memory, or in the reply that the lane keeps.
void MultiGet::found(Lane& lane, const ValueView& value) {
  if (value.durability < at_least_) [[unlikely]] {
    lane.found = value;
    lane.state = State::kNeedsMark;
    if (lane.reply) ++replies_kept_;
    ++waiting_;
    ++mark_waiting_;
    return;
  }
  if (lane.reply) {
    engine_.getter.count_found_by_request();
  } else {
    engine_.getter.count_found_by_read(lane.machine, lane.asked != 0);
  }
  finish(lane, value);
}

// Calls `answer(lane)` for each waiting lane: the result to report, or empty to keep waiting.
template <class Answer>
void MultiGet::finish_those_that_wait_for_marks(Answer answer) {
  for (Lane& lane : engine_.getter.lanes()) {
    if (lane.state != State::kNeedsMark) continue;
    const std::optional<Result<ValueView>> told = answer(lane);
    if (!told) continue;
    --waiting_;
    --mark_waiting_;
    if (lane.reply) --replies_kept_;
    if (*told) {
      found(lane, **told);
    } else {
      finish(lane, *told);
    }
  }
}

// Waiting lanes are checked again on every call, since any answer may have carried new marks.
void MultiGet::look_at_marks_if_quiet() {
  const auto safe = [&](Lane& lane) -> std::optional<Result<ValueView>> {
    lane.found.durability = engine_.session.durability_of(Version{lane.found.version});
    if (lane.found.durability < at_least_) return std::nullopt;
    return lane.found;
  };
  finish_those_that_wait_for_marks(safe);
  if (mark_waiting_ == 0 || under_way_ != 0 || map_waiting_ != 0 || may_start()) return;
  if (asks_for_marks_) return ask_for_marks();
  if (engine_.session.clock.now() < look_at_) return;
  const Status looked = engine_.session.loader.look_at_marks(blocking_deadline());
  if (!engine_.session.link.alive()) return;  // the driver, run() or FanOut, reconnects
  finish_those_that_wait_for_marks(safe);
  const bool torn = !looked && looked.error().code == Code::kBusy;
  if (torn || (looked && !engine_.session.map.marks().none())) {
    look_at_ = engine_.session.clock.now() + engine_.getter.mark_wait().pause();
    asks_for_marks_ = mark_waiting_ != 0 && engine_.getter.mark_wait().asks_after_look();
    return;
  }
  fail_those_that_wait_for_marks(looked ? Error{.code = Code::kUnsupported, .text = Getter::kNoDisk}
                                        : looked.error());
}

void MultiGet::fail_those_that_wait_for_marks(const Error& error) {
  finish_those_that_wait_for_marks([&](Lane&) -> std::optional<Result<ValueView>> {
    return Result<ValueView>(std::unexpected(error));
  });
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
  const Status given = engine_.getter.give_value_buffer(lane, nullptr);
  if (!given && given.error().code == Code::kBusy) return;
  --waiting_;
  if (given) return advance(lane, lane.machine.step());
  engine_.getter.count_reads(lane.machine);
  finish(lane, std::unexpected(given.error()));
}

void MultiGet::refresh_if_quiet() {
  if (under_way_ != 0) return;
  for (Lane& lane : engine_.getter.lanes()) {
    if (lane.state != State::kNeedsMap) continue;
    const Status refreshed = engine_.getter.refresh_map(lane.next, blocking_deadline());
    if (!engine_.session.link.alive()) return;  // the driver, run() or FanOut, reconnects
    --waiting_;
    --map_waiting_;
    if (refreshed) {
      advance(lane, lane.machine.step());
    } else if (refreshed.error().code == Code::kBusy) {
      advance(lane, lane.machine.ask_server());
    } else {
      engine_.getter.count_reads(lane.machine);
      finish(lane, std::unexpected(refreshed.error()));
    }
  }
}

void MultiGet::ask_server(Lane& lane) {
  if (ask_at_ != 0) {
    if (engine_.session.clock.now() < ask_at_) return;
    ask_at_ = 0;
  }
  // Kept replies occupy the buffers that the next replies arrive in.
  if (engine_.session.link.requests().in_flight() + replies_kept_ >=
      engine_.session.options.requests_in_flight) {
    return;
  }
  const Request get = engine_.getter.request_for(as_bytes(keys_[lane.index]));
  const auto operation = engine_.session.link.requests().begin(get, number_of(lane));
  if (!operation) return;
  engine_.multi_gets.batch.push_back(*operation);
  lane.state = State::kAwaitsReply;
  --waiting_;
  ++under_way_;
  ++engine_.session.stats.two_sided_requests;
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
      if (event.context == kMarksTag) {
        on_marks(event.response);
        engine_.session.link.release(event.buffer);
        continue;
      }
      if (!on_reply(event)) engine_.session.link.release(event.buffer);
      continue;
    }
    Lane& lane = engine_.getter.lanes()[event.context];
    if (--lane.pending == 0) advance(lane, lane.machine.step());
  }
  if (!events.empty()) engine_.connector.progressed();
  return events.size();
}

// As Getter::look_or_ask(), the error of a refused request is ignored.
void MultiGet::on_marks(const Response& response) {
  engine_.session.learn_marks(response);
  if (engine_.session.map.marks().none()) {
    fail_those_that_wait_for_marks({.code = Code::kUnsupported, .text = Getter::kNoDisk});
  }
}

// Returns true if the lane has taken the receive buffer.
bool MultiGet::on_reply(const Event& event) {
  Lane& lane = engine_.getter.lanes()[event.context];
  const Response& response = event.response;
  engine_.session.learn_marks(response);
  const auto code = static_cast<Code>(response.code);
  if (Requester::is_later(Opcode::kGet, code)) {
    engine_.session.refusal = std::string(as_text(response.value));
    ask_at_ = engine_.session.clock.now() + engine_.requester.busy_wait(response);
    lane.state = State::kNeedsRequest;
    ++waiting_;
    return false;
  }
  engine_.getter.count_reads(lane.machine);
  if (response.code == 0 && (response.flags & Response::kByRead) != 0) {
    engine_.getter.free_large(lane);
    advance(lane, lane.machine.start_at(as_bytes(keys_[lane.index]),
                                        engine_.session.arena.get_memory(number_of(lane)),
                                        response.slot, response.version));
    return false;
  }
  if (response.code != 0) {
    if (code == Code::kNotFound) engine_.getter.count_missing_by_request();
    finish(lane, std::unexpected(engine_.requester.refused(response)));
    return false;
  }
  const ValueView value = found_view(response, engine_.session.durability_of(response));
  if (value.durability < at_least_ && (response.flags & Response::kInCell) != 0) {
    finish(lane, fail(Code::kUnsupported, Getter::kNumberInCell));
    return false;
  }
  engine_.session.learn_slot(lane.machine.hash(), response);
  lane.reply.emplace(engine_.session.link, event);
  found(lane, value);
  return true;
}

// Until a busy server may be asked again, or the marks may be checked again.
Nanos MultiGet::sleep_until() const {
  const bool looks = mark_waiting_ != 0 && look_at_ != 0 && under_way_ == 0;
  if (may_start() || (under_way_ == 0 && ask_at_ == 0 && !looks)) return 0;
  Nanos until = deadline_.at();
  if (ask_at_ != 0) until = std::min(until, ask_at_);
  if (looks) until = std::min(until, look_at_);
  return until;
}

void MultiGet::time_out() {
  // Operations in flight may still land: closing the link quarantines their buffers (K1).
  if (under_way_ != 0) engine_.session.link.close();
  finish_those_that_wait_for_marks([](Lane&) -> std::optional<Result<ValueView>> {
    return Result<ValueView>(fail(Code::kTimeout, Getter::kNotDurable));
  });
  fail_rest({.code = Code::kTimeout, .text = "the server did not answer in time"});
}

void MultiGet::finish(Lane& lane, const Result<ValueView>& result) {
  visit_(target_, lane.index, result);
  engine_.getter.free_large(lane);
  lane.reply.reset();
  lane.state = State::kFree;
  engine_.multi_gets.free_lanes.push_back(&lane);
  ++finished_;
}

void MultiGet::fail_rest(const Error& error) {
  for (Lane& lane : engine_.getter.lanes()) {
    if (lane.state == State::kFree) continue;
    if (lane.state != State::kNeedsMark) engine_.getter.count_reads(lane.machine);
    finish(lane, std::unexpected(error));
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
