#include "client/engine/multi_get.h"

#include <algorithm>

#include "common/check.h"

namespace rkv::client {

namespace {
constexpr const char* kNoDisk = "the server keeps its data in memory only";
}

void MultiGet::begin() {
  engine_.batch_.clear();
  engine_.busy_backoff_.reset();
  engine_.mark_wait_.begin();
  engine_.free_lanes_.clear();
  for (Lane& lane : engine_.lanes_) {
    engine_.free_large(lane);
    lane.reply.reset();
    lane.state = State::kFree;
    engine_.free_lanes_.push_back(&lane);
  }
}

void MultiGet::run() {
  begin();
  // The deadline holds even while there is progress, but need not be checked every round.
  constexpr unsigned kRoundsPerLook = 64;
  for (unsigned round = 1; finished_ < keys_.size(); ++round) {
    if (!engine_.usable()) {
      if (const Status usable = engine_.ensure_connected(deadline_); !usable) {
        return fail_rest(usable.error());
      }
      mended();
    }
    const bool idle = !advance();
    if (!idle && round % kRoundsPerLook != 0) continue;
    if (deadline_.passed()) return time_out();
    if (!idle || !engine_.link_.alive()) continue;
    if (const Nanos until = sleep_until(); until != 0) {
      engine_.link_.wait(Deadline(*engine_.clock_, until));
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
  engine_.batch_.clear();
  under_way_ = waiting_ = map_waiting_ = mark_waiting_ = replies_kept_ = 0;
  look_at_ = 0;
  asks_for_marks_ = false;
  for (Lane& lane : engine_.lanes_) {
    if (lane.state == State::kFree) continue;
    if (lane.state != State::kNeedsMark) engine_.account(lane.machine);
    lane.reply.reset();
    restart(lane);
  }
}

// Tries one batch of kBatchKeys keys, so that the deadline and GETs in flight are handled in
// between.
void MultiGet::try_get_sync() {
  next_left_ = 0;
  left_count_ =
      engine_.try_get_sync(keys_, next_key_, at_least_, visit_, target_, std::span(left_));
  const std::size_t tried = std::min(Engine::kBatchKeys, keys_.size() - next_key_);
  next_key_ += tried;
  finished_ += tried - left_count_;
}

void MultiGet::start_lanes() {
  const bool at_once = engine_.reads_at_once();
  if (at_once && next_left_ == left_count_ && next_key_ < keys_.size()) try_get_sync();
  while (!engine_.free_lanes_.empty()) {
    std::size_t index = 0;
    if (next_left_ < left_count_) {
      index = left_[next_left_++];
    } else if (!at_once && next_key_ < keys_.size()) {
      index = next_key_++;
    } else {
      return;
    }
    ++engine_.stats_.gets;
    if (const Status valid = check_key(as_bytes(keys_[index])); !valid) {
      visit_(target_, index, std::unexpected(valid.error()));
      ++finished_;
      continue;
    }
    Lane& lane = *engine_.free_lanes_.back();
    engine_.free_lanes_.pop_back();
    lane.index = index;
    lane.asked = 0;
    restart(lane);
  }
}

void MultiGet::restart(Lane& lane) {
  engine_.free_large(lane);
  lane.pending = 0;
  advance(lane, lane.machine.start(as_bytes(keys_[lane.index]),
                                   engine_.arena_.get_memory(number_of(lane))));
}

void MultiGet::queue_reads(Lane& lane) {
  const std::size_t number = number_of(lane);
  for (const ReadRequest& read : lane.machine.reads()) {
    engine_.batch_.push_back(Link::operation_of(read, engine_.link_.local_key(), number));
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
      engine_.used_.note(lane.machine.hash());
      engine_.account(lane.machine);
      return found(lane, found_view(lane.machine.fields(), engine_.map_.marks()));
    case Next::kMissing:
      ++engine_.stats_.cache_misses;
      ++engine_.stats_.one_sided_gets;
      ++engine_.stats_.missing;
      engine_.account(lane.machine);
      return finish(lane, fail(Code::kNotFound, nullptr));
    case Next::kTwoSided:
      if (++lane.asked > Engine::kMaxAsked) {
        engine_.account(lane.machine);
        return finish(lane, fail(Code::kBusy, "the value is rewritten faster than it can be read"));
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
  for (Lane& lane : engine_.lanes_) {
    if (lane.state == State::kNeedsBuffer) {
      lane.large = engine_.arena_.take_large();
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
    ++engine_.stats_.two_sided_gets;
  } else {
    ++(lane.machine.used_cache() ? engine_.stats_.cache_hits : engine_.stats_.cache_misses);
    ++(lane.asked != 0 ? engine_.stats_.two_sided_gets : engine_.stats_.one_sided_gets);
  }
  finish(lane, value);
}

// Calls `answer(lane)` for each waiting lane: the result to report, or empty to keep waiting.
template <class Answer>
void MultiGet::finish_those_that_wait_for_marks(Answer answer) {
  for (Lane& lane : engine_.lanes_) {
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
    lane.found.durability = engine_.durability_of(Version{lane.found.version});
    if (lane.found.durability < at_least_) return std::nullopt;
    return lane.found;
  };
  finish_those_that_wait_for_marks(safe);
  if (mark_waiting_ == 0 || under_way_ != 0 || map_waiting_ != 0 || may_start()) return;
  if (asks_for_marks_) return ask_for_marks();
  if (engine_.clock_->now() < look_at_) return;
  const Status looked = engine_.loader_.look_at_marks(blocking_deadline());
  if (!engine_.link_.alive()) return;  // the driver, run() or FanOut, reconnects
  finish_those_that_wait_for_marks(safe);
  const bool torn = !looked && looked.error().code == Code::kBusy;
  if (torn || (looked && !engine_.map_.marks().none())) {
    look_at_ = engine_.clock_->now() + engine_.mark_wait_.pause();
    asks_for_marks_ = mark_waiting_ != 0 && engine_.mark_wait_.asks_after_look();
    return;
  }
  fail_those_that_wait_for_marks(looked ? Error{.code = Code::kUnsupported, .text = kNoDisk}
                                        : looked.error());
}

void MultiGet::fail_those_that_wait_for_marks(const Error& error) {
  finish_those_that_wait_for_marks([&](Lane&) -> std::optional<Result<ValueView>> {
    return Result<ValueView>(std::unexpected(error));
  });
}

// No other request is in flight, so there is a credit.
void MultiGet::ask_for_marks() {
  const auto operation =
      engine_.link_.requests().begin({.opcode = MarkWait::request_for(at_least_)}, kMarksTag);
  if (!operation) return;
  asks_for_marks_ = false;
  engine_.batch_.push_back(*operation);
  ++under_way_;
  ++engine_.stats_.two_sided_requests;
}

// If other lanes have taken all the memory, the lane waits: they return it when they finish.
void MultiGet::give_value_buffer(Lane& lane) {
  const Status given = engine_.give_value_buffer(lane, nullptr);
  if (!given && given.error().code == Code::kBusy) return;
  --waiting_;
  if (given) return advance(lane, lane.machine.step());
  engine_.account(lane.machine);
  finish(lane, std::unexpected(given.error()));
}

void MultiGet::refresh_if_quiet() {
  if (under_way_ != 0) return;
  for (Lane& lane : engine_.lanes_) {
    if (lane.state != State::kNeedsMap) continue;
    const Status refreshed = engine_.refresh_map(lane.next, blocking_deadline());
    if (!engine_.link_.alive()) return;  // the driver, run() or FanOut, reconnects
    --waiting_;
    --map_waiting_;
    if (refreshed) {
      advance(lane, lane.machine.step());
    } else if (refreshed.error().code == Code::kBusy) {
      advance(lane, lane.machine.ask_server());
    } else {
      engine_.account(lane.machine);
      finish(lane, std::unexpected(refreshed.error()));
    }
  }
}

void MultiGet::ask_server(Lane& lane) {
  if (ask_at_ != 0) {
    if (engine_.clock_->now() < ask_at_) return;
    ask_at_ = 0;
  }
  // Kept replies occupy the buffers that the next replies arrive in.
  if (engine_.link_.requests().in_flight() + replies_kept_ >= engine_.options_.requests_in_flight) {
    return;
  }
  Request get{.opcode = Opcode::kGet};
  get.key = as_bytes(keys_[lane.index]);
  get.value = engine_.used_.take();
  const auto operation = engine_.link_.requests().begin(get, number_of(lane));
  if (!operation) return;
  engine_.batch_.push_back(*operation);
  lane.state = State::kAwaitsReply;
  --waiting_;
  ++under_way_;
  ++engine_.stats_.two_sided_requests;
}

// Returns true if anything was posted.
bool MultiGet::post() {
  if (engine_.batch_.empty()) return false;
  const auto taken = engine_.link_.post(engine_.batch_);
  if (!taken) {
    engine_.batch_.clear();
    return true;  // the driver notices that the link is dead
  }
  engine_.batch_.erase(engine_.batch_.begin(),
                       engine_.batch_.begin() + static_cast<std::ptrdiff_t>(*taken));
  return *taken != 0;
}

std::size_t MultiGet::poll() {
  if (!engine_.link_.alive()) return 1;
  const auto events = engine_.link_.poll();
  for (const Event& event : events) {
    --under_way_;
    if (event.kind == Event::Kind::kReply) {
      if (event.context == kMarksTag) {
        on_marks(event.response);
        engine_.link_.release(event.buffer);
        continue;
      }
      if (!on_reply(event)) engine_.link_.release(event.buffer);
      continue;
    }
    Lane& lane = engine_.lanes_[event.context];
    if (--lane.pending == 0) advance(lane, lane.machine.step());
  }
  if (!events.empty()) engine_.reconnect_backoff_.reset();
  return events.size();
}

// As Engine::look_or_ask(), the error of a refused request is ignored.
void MultiGet::on_marks(const Response& response) {
  engine_.learn_marks(response);
  if (engine_.map_.marks().none()) {
    fail_those_that_wait_for_marks({.code = Code::kUnsupported, .text = kNoDisk});
  }
}

// Returns true if the lane has taken the receive buffer.
bool MultiGet::on_reply(const Event& event) {
  Lane& lane = engine_.lanes_[event.context];
  const Response& response = event.response;
  engine_.learn_marks(response);
  const auto code = static_cast<Code>(response.code);
  if (Engine::is_later(Opcode::kGet, code)) {
    engine_.refusal_ = std::string(as_text(response.value));
    ++engine_.stats_.busy_answers;
    ask_at_ = engine_.clock_->now() + engine_.busy_wait(response);
    lane.state = State::kNeedsRequest;
    ++waiting_;
    return false;
  }
  engine_.account(lane.machine);
  if (response.code == 0 && (response.flags & Response::kByRead) != 0) {
    engine_.free_large(lane);
    advance(lane, lane.machine.start_at(as_bytes(keys_[lane.index]),
                                        engine_.arena_.get_memory(number_of(lane)), response.slot,
                                        response.version));
    return false;
  }
  if (response.code != 0) {
    if (code == Code::kNotFound) {
      ++engine_.stats_.two_sided_gets;
      ++engine_.stats_.missing;
    }
    finish(lane, std::unexpected(engine_.refused(response)));
    return false;
  }
  const ValueView value{.value = as_text(response.value),
                        .version = response.version.bits,
                        .expires_at_ms = response.expiry_ms,
                        .is_counter = (response.flags & Response::kCounter) != 0,
                        .durability = engine_.durability_of(response)};
  if (value.durability < at_least_ && (response.flags & Response::kInCell) != 0) {
    finish(lane, fail(Code::kUnsupported, Engine::kNumberInCell));
    return false;
  }
  engine_.learn_slot(lane.machine.hash(), response);
  lane.reply.emplace(engine_.link_, event);
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
  if (under_way_ != 0) engine_.link_.close();
  finish_those_that_wait_for_marks([](Lane&) -> std::optional<Result<ValueView>> {
    return Result<ValueView>(
        fail(Code::kTimeout, "the value did not reach the requested durability in time"));
  });
  fail_rest({.code = Code::kTimeout, .text = "the server did not answer in time"});
}

void MultiGet::finish(Lane& lane, const Result<ValueView>& result) {
  visit_(target_, lane.index, result);
  engine_.free_large(lane);
  lane.reply.reset();
  lane.state = State::kFree;
  engine_.free_lanes_.push_back(&lane);
  ++finished_;
}

void MultiGet::fail_rest(const Error& error) {
  for (Lane& lane : engine_.lanes_) {
    if (lane.state == State::kFree) continue;
    if (lane.state != State::kNeedsMark) engine_.account(lane.machine);
    finish(lane, std::unexpected(error));
  }
  const auto fail_one = [&](std::size_t index) {
    ++engine_.stats_.gets;
    visit_(target_, index, std::unexpected(error));
    ++finished_;
  };
  while (next_left_ < left_count_)
    fail_one(left_[next_left_++]);
  while (next_key_ < keys_.size())
    fail_one(next_key_++);
}

void Engine::multi_get(std::span<const std::string_view> keys, Durability at_least,
                       const Deadline& deadline, GetVisitor visit, void* target) {
  MultiGet(*this, keys, at_least, deadline, visit, target).run();
}

}  // namespace rkv::client
