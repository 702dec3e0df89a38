#include "client/engine/get_pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"

namespace rkv::client {

namespace {

// Pause of a stream between two looks at the group line. A look itself waits for a fifth of it.
constexpr Nanos kLookAgain = kNanosPerMs;

}  // namespace

// ----------------------------------------------------------------------------------- the feed

std::size_t KeysFeed::take(std::span<GetItem> out) {
  const std::size_t count = std::min(out.size(), keys_.size() - next_);
  for (std::size_t i = 0; i < count; ++i, ++next_)
    out[i] = {.key = keys_[next_], .token = next_, .at_least = at_least_};
  return count;
}

// ------------------------------------------------------------------------------------- rounds

void GetPipeline::begin() {
  RKV_CHECK(buffers_->free_lanes.size() == lanes().size(), "the last pipeline kept lanes");
  buffers_->batch.clear();
  engine_.requester.reset_busy_wait();
  engine_.getter.mark_wait().begin();
  lanes_at_[std::to_underlying(Need::kNothing)] = lanes().size();
}

void GetPipeline::run() {
  begin();
  if (engine_.session.usable()) (void)engine_.connector.believe(deadline_);
  // The deadline holds even while there is progress, but need not be checked every round.
  constexpr unsigned kRoundsPerLook = 64;
  for (unsigned round = 1; !over(); ++round) {
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

bool GetPipeline::advance() {
  const bool started = start();
  return poll() != 0 || started;
}

bool GetPipeline::start() {
  if (has_given_up_) drop_given_up();
  const bool starts = may_start();
  if (starts) start_lanes();
  if (serves()) serve_waiting();
  const bool posted = post();
  return posted || starts;
}

// Restarts every GET in flight (GETOP-1).
void GetPipeline::mended() {
  buffers_->batch.clear();
  under_way_ = 0;
  look_at_ = 0;
  replicated_at_ = 0;
  asks_for_marks_ = false;
  for (GetLane& lane : lanes()) {
    if (lane.at == Need::kNothing) continue;
    lane.op.on_lost();
    lane.pending = 0;
    lane.uses_into = false;
    if (lane.token == kGivenUp) {
      lane.op.end_with({.code = Code::kDisconnected});
    } else {
      lane.op.start();
    }
    follow(lane);
  }
}

// Tries one batch of kBatchKeys keys, so that the deadline and GETs in flight are handled in
// between.
void GetPipeline::try_get_sync() {
  next_left_ = 0;
  const std::size_t count = feed_->take(buffers_->taken);
  left_count_ = engine_.getter.try_sync(
      std::span(buffers_->taken).first(count),
      [](void* feed, std::uint64_t token, const Result<ValueView>& result) {
        static_cast<GetFeed*>(feed)->done(token, result);
      },
      feed_, std::span(buffers_->left));
}

void GetPipeline::start_lanes() {
  const bool at_once = engine_.getter.reads_at_once();
  if (at_once && next_left_ == left_count_ && !feed_->empty()) try_get_sync();
  while (!buffers_->free_lanes.empty()) {
    if (next_left_ < left_count_) {
      start_lane(buffers_->taken[buffers_->left[next_left_++]]);
    } else {
      GetItem item;
      if (at_once || feed_->take({&item, 1}) == 0) return;
      start_lane(item);
    }
  }
}

void GetPipeline::start_lane(const GetItem& item) {
  if (item.token == kGivenUp) return;
  GetLane& lane = *buffers_->free_lanes.back();
  buffers_->free_lanes.pop_back();
  lane.token = item.token;
  lane.pending = 0;
  lane.into = item.into;
  lane.local_key = item.local_key;
  lane.uses_into = false;
  lane.ends_with.reset();
  lane.op.begin(as_bytes(item.key), item.at_least);
  if (lane.op.need() == Need::kConnection) lane.op.start();
  follow(lane);
}

// Acts on what the lane's GET needs now.
void GetPipeline::follow(GetLane& lane) {
  --lanes_at_[std::to_underlying(lane.at)];
  lane.at = lane.op.need();
  ++lanes_at_[std::to_underlying(lane.at)];
  if (lane.at == Need::kReads) return queue_reads(lane);
  if (lane.at == Need::kNothing) finish(lane);
}

template <class Step>
void GetPipeline::for_each_at(Need need, Step step) {
  for (GetLane& lane : lanes()) {
    if (lane.at != need) continue;
    step(lane.op);
    follow(lane);
  }
}

void GetPipeline::queue_reads(GetLane& lane) {
  for (const ReadRequest& read : lane.op.reads()) {
    buffers_->batch.push_back(
        Link::operation_of(read, engine_.session.link.local_key(), lane.number));
    ++lane.pending;
    ++under_way_;
  }
}

// A GET that was given up ends when no READ or request of it is under way.
void GetPipeline::drop_given_up() {
  has_given_up_ = false;
  for (GetLane& lane : lanes()) {
    const bool waits = lane.at == Need::kReads || lane.at == Need::kReply;
    if (lane.at == Need::kNothing || lane.token != kGivenUp || waits) continue;
    lane.op.end_with({.code = Code::kTimeout});
    follow(lane);
  }
}

bool GetPipeline::awaits_given_up() const {
  return std::ranges::any_of(lanes(), [](const GetLane& lane) {
    return lane.ends_with ||
           (lane.token == kGivenUp && (lane.at == Need::kReads || lane.at == Need::kReply));
  });
}

void GetPipeline::end_lost() {
  for (GetLane& lane : lanes()) {
    lane.uses_into = false;
    if (lane.ends_with) leave_lane(lane, *std::exchange(lane.ends_with, std::nullopt));
  }
}

void GetPipeline::serve_waiting() {
  std::size_t replies_kept = 0;
  if (at(Need::kReplicated) != 0)
    for_each_at(Need::kReplicated, [](GetOp& op) { op.on_replicated(); });
  if (at(Need::kMark) != 0) {
    check_marks(false);  // any answer may have carried new marks
    if (at(Need::kMark) != 0 && asks_for_marks_ && may_look()) ask_for_marks();
    replies_kept = static_cast<std::size_t>(
        std::ranges::count_if(lanes(), [](const GetLane& lane) { return lane.op.keeps_reply(); }));
  }
  for (GetLane& lane : lanes()) {
    if (lane.at == Need::kLargeBuffer) {
      if (lane.op.take_large_buffer()) follow(lane);
    } else if (lane.at == Need::kValueBuffer) {
      give_value_buffer(lane);
    } else if (lane.at == Need::kRequest) {
      ask_server(lane, replies_kept);
    }
  }
  if (!is_stream_) perform_step();
}

// ---------------------------------------------------------------------------- steps that block

BlockingStep GetPipeline::wanted_step() const {
  using Step = BlockingStep::Kind;
  if (!serves()) return {};
  const Nanos now = engine_.session.clock.now();
  const auto waits = [&](Need need) {
    return std::ranges::find_if(lanes(), [&](const GetLane& lane) { return lane.at == need; });
  };
  if (at(Need::kMap) != 0) {
    const bool directory = waits(Need::kMap)->op.stale_map() == GetMachine::Next::kRefreshDirectory;
    return {.kind = directory ? Step::kDirectory : Step::kExtents};
  }
  if (!may_look()) return {};
  if (at(Need::kReplicated) != 0 && now >= replicated_at_) {
    const auto lane = waits(Need::kReplicated);
    return {.kind = Step::kReplicated,
            .version = lane->op.version(),
            .lane = lane->number,
            .patience_end = is_stream_ ? now + kLookAgain / 5 : std::numeric_limits<Nanos>::max()};
  }
  const bool looks = at(Need::kMark) != 0 && !asks_for_marks_ && now >= look_at_;
  if (looks && (is_stream_ || at(Need::kReplicated) == 0)) return {.kind = Step::kMarks};
  return {};
}

Status GetPipeline::perform(Engine& engine, const BlockingStep& step, const Deadline& deadline) {
  switch (step.kind) {
    case BlockingStep::Kind::kExtents:
      return engine.getter.refresh_map(GetMachine::Next::kRefreshExtents, deadline);
    case BlockingStep::Kind::kDirectory:
      return engine.getter.refresh_map(GetMachine::Next::kRefreshDirectory, deadline);
    case BlockingStep::Kind::kMarks:
      return engine.session.loader.look_at_marks(deadline);
    case BlockingStep::Kind::kReplicated:
      return engine.connector.await_replicated(step.version, deadline, step.patience_end);
    case BlockingStep::Kind::kNone:
      break;
  }
  return {};
}

void GetPipeline::perform_step() {
  const BlockingStep step = wanted_step();
  if (step.kind == BlockingStep::Kind::kNone) return;
  const Status status = perform(engine_, step, blocking_deadline());
  if (!engine_.session.link.alive()) return;  // the driver, run() or FanOut, reconnects
  on_step(step, status);
}

void GetPipeline::on_step(const BlockingStep& step, const Status& status) {
  switch (step.kind) {
    case BlockingStep::Kind::kExtents:
    case BlockingStep::Kind::kDirectory:
      return on_map(step, status);
    case BlockingStep::Kind::kMarks:
      return on_look(status);
    case BlockingStep::Kind::kReplicated:
      return on_replicated(step, status);
    case BlockingStep::Kind::kNone:
      return;
  }
}

// Each of these GETs has found the map stale before the step began.
void GetPipeline::on_map(const BlockingStep& step, const Status& refreshed) {
  const bool directory = step.kind == BlockingStep::Kind::kDirectory;
  for (GetLane& lane : lanes()) {
    if (lane.at != Need::kMap || lane.token == kGivenUp) continue;
    if ((lane.op.stale_map() == GetMachine::Next::kRefreshDirectory) != directory) continue;
    lane.op.on_map(refreshed);
    follow(lane);
  }
}

// The version that one lane waits for mostly covers those of the others.
void GetPipeline::on_replicated(const BlockingStep& step, const Status& replicated) {
  for_each_at(Need::kReplicated, [](GetOp& op) { op.on_replicated(); });
  if (replicated) return;
  if (is_stream_ && replicated.error().code == Code::kBusy) {
    replicated_at_ = engine_.session.clock.now() + kLookAgain;
    return;
  }
  GetLane& lane = lanes()[step.lane];
  if (lane.at != Need::kReplicated || lane.op.version() != step.version) return;
  lane.op.end_with(replicated.error());
  follow(lane);
}

void GetPipeline::on_look(const Status& looked) {
  if (!looked && looked.error().code != Code::kBusy) {
    return for_each_at(Need::kMark, [&](GetOp& op) { op.end_with(looked.error()); });
  }
  check_marks(looked.has_value());
  MarkWait& wait = engine_.getter.mark_wait();
  if (is_stream_ && at(Need::kMark) == 0) wait.begin();
  look_at_ = engine_.session.clock.now() + wait.pause();
  asks_for_marks_ = at(Need::kMark) != 0 && wait.asks_after_look();
}

void GetPipeline::check_marks(bool seen) {
  for_each_at(Need::kMark, [&](GetOp& op) { op.on_marks(seen); });
}

// -------------------------------------------------------------------------- what lanes wait for

void GetPipeline::ask_for_marks() {
  Durability at_least = Durability::kMemory;
  for (const GetLane& lane : lanes()) {
    if (lane.at == Need::kMark) at_least = std::max(at_least, lane.op.at_least());
  }
  const auto operation =
      engine_.session.link.requests().begin({.opcode = MarkWait::request_for(at_least)}, kMarksTag);
  if (!operation) return;
  asks_for_marks_ = false;
  buffers_->batch.push_back(*operation);
  ++under_way_;
  ++engine_.session.stats.two_sided_requests;
}

// If other lanes have taken all the memory, the lane waits: they return it when they finish.
void GetPipeline::give_value_buffer(GetLane& lane) {
  if (!lane.into.empty() && lane.into.size() >= lane.op.value_bytes()) {
    lane.uses_into = true;
    lane.op.give_value_buffer(lane.into, lane.local_key);
    return follow(lane);
  }
  const Status given = lane.op.take_value_buffer();
  if (!given && given.error().code == Code::kBusy) return;
  if (!given) lane.op.end_with(given.error());
  follow(lane);
}

void GetPipeline::ask_server(GetLane& lane, std::size_t replies_kept) {
  if (ask_at_ != 0) {
    if (engine_.session.clock.now() < ask_at_) return;
    ask_at_ = 0;
  }
  // Kept replies occupy the buffers that the next replies arrive in.
  Requests& requests = engine_.session.link.requests();
  if (requests.in_flight() + replies_kept >= engine_.session.options.requests_in_flight) return;
  if (is_stream_ && lane.op.at_least() > Durability::kMemory && !may_keep_another()) return;
  const auto operation = requests.begin(lane.op.request(), lane.number);
  if (!operation) return;
  buffers_->batch.push_back(*operation);
  ++under_way_;
  ++engine_.session.stats.two_sided_requests;
  lane.op.reported();
  lane.op.on_sent();
  follow(lane);
}

// Writes use the same receive buffers, and do not reckon with replies that are kept.
bool GetPipeline::may_keep_another() const {
  constexpr std::ptrdiff_t kMost = 3;
  return std::ranges::count_if(lanes(), [](const GetLane& lane) {
           return lane.op.keeps_reply() ||
                  (lane.at == Need::kReply && lane.op.at_least() > Durability::kMemory);
         }) < kMost;
}

// Returns true if anything was posted.
bool GetPipeline::post() {
  auto& batch = buffers_->batch;
  if (batch.empty()) return false;
  const auto taken = engine_.session.link.post(batch);
  if (!taken) {
    batch.clear();
    return true;  // the driver notices that the link is dead
  }
  batch.erase(batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(*taken));
  return *taken != 0;
}

std::size_t GetPipeline::poll() {
  if (!engine_.session.link.alive()) return 1;
  const auto events = engine_.session.link.poll();
  for (const Event& event : events)
    on_event(event);
  if (!events.empty()) engine_.connector.progressed();
  return events.size();
}

void GetPipeline::on_event(const Event& event) {
  --under_way_;
  if (event.kind == Event::Kind::kReply) {
    return on_reply(Reply(engine_.session.link, event), event.context);
  }
  GetLane& lane = lanes()[event.context];
  if (--lane.pending != 0) return;
  if (lane.token == kGivenUp) {
    lane.op.end_with({.code = Code::kTimeout});
  } else if (lane.ends_with) {
    lane.op.end_with(*std::exchange(lane.ends_with, std::nullopt));
  } else {
    lane.op.on_reads();
  }
  follow(lane);
}

void GetPipeline::on_reply(Reply reply, std::uint64_t tag) {
  const Response& response = reply.response();
  engine_.session.learn_marks(response);
  // As in Getter::await_mark(), the error of a refused request is ignored.
  if (tag == kMarksTag) return check_marks(true);
  GetLane& lane = lanes()[tag];
  if (lane.token == kGivenUp) {
    lane.op.end_with({.code = Code::kTimeout});
  } else if (Requester::is_later(Opcode::kGet, static_cast<Code>(response.code))) {
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

// Returns when a busy server may be asked again, or the marks may be checked again.
Nanos GetPipeline::sleep_until() const {
  if (may_start()) return 0;
  const bool asks = ask_at_ != 0 && (!is_stream_ || at(Need::kRequest) != 0);
  const bool looks =
      at(Need::kMark) != 0 && look_at_ != 0 && (is_stream_ ? !asks_for_marks_ : under_way_ == 0);
  if (!is_stream_ && under_way_ == 0 && !asks && !looks) return 0;
  Nanos until = deadline_.at();
  if (asks) until = std::min(until, ask_at_);
  if (looks) until = std::min(until, look_at_);
  if (is_stream_ && at(Need::kReplicated) != 0) until = std::min(until, replicated_at_);
  return until;
}

// ------------------------------------------------------------------------------------- the end

void GetPipeline::time_out() {
  // READs in flight may still land: closing the link quarantines their buffers (LINK-1).
  if (under_way_ != 0) engine_.session.link.close();
  for_each_at(Need::kMark, [](GetOp& op) { op.on_no_mark(); });
  fail_rest({.code = Code::kTimeout, .text = "the server did not answer in time"});
}

void GetPipeline::finish(GetLane& lane) {
  if (lane.token != kGivenUp) feed_->done(lane.token, lane.op.result());
  lane.op.release();
  buffers_->free_lanes.push_back(&lane);
}

void GetPipeline::fail_rest(const Error& error) {
  for (GetLane& lane : lanes()) {
    if (lane.at == Need::kNothing) continue;
    lane.op.end_with(lane.ends_with ? *std::exchange(lane.ends_with, std::nullopt) : error);
    follow(lane);
  }
  const auto fail_one = [&](const GetItem& item) {
    if (item.token == kGivenUp) return;
    ++engine_.session.stats.gets;
    feed_->done(item.token, std::unexpected(error));
  };
  while (next_left_ < left_count_)
    fail_one(buffers_->taken[buffers_->left[next_left_++]]);
  for (GetItem item; feed_->take({&item, 1}) != 0;)
    fail_one(item);
}

}  // namespace rkv::client
