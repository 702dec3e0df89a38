#include "client/cluster/fan_out.h"

#include <algorithm>

#include "common/check.h"

namespace rkv::client {

FanOut::FanOut(std::span<Pipeline* const> flows, const Deadline& deadline)
    : deadline_(deadline),
      clock_(flows.front()->engine().session.clock),
      mend_from_(clock_.now() + (deadline.at() - clock_.now()) / 2) {
  RKV_CHECK(flows.size() <= parts_.size(), "too many flows at once");
  for (Pipeline* const flow : flows) {
    flow->share_thread();
    flow->begin();
    Connector& connector = flow->engine().connector;
    if (flow->engine().session.usable()) (void)connector.believe({clock_, mend_from_});
    if (!flow->over()) parts_[count_++] = {.flow = flow};
  }
}

void FanOut::run() {
  // The deadline holds even while there is progress, but need not be checked every round.
  constexpr unsigned kRoundsPerLook = 64;
  for (unsigned round = 1; count_ != 0; ++round) {
    const bool idle = !advance();
    look_after_lost();
    const auto parts = std::span(parts_).first(count_);
    const auto end = std::ranges::remove_if(parts, [](Part& p) { return p.flow->over(); });
    count_ -= end.size();
    if (count_ == 0 || (!idle && round % kRoundsPerLook != 0)) continue;
    if (deadline_.passed()) {
      for (Part& part : std::span(parts_).first(count_)) {
        if (part.mending) part.flow->fail_rest(part.last);
        if (!part.flow->over()) part.flow->time_out();
      }
      return;
    }
    if (!idle) continue;
    const bool mend_later = any_well() && clock_.now() < mend_from_;  // FAN-2
    if (mend_later || !mend_one()) sleep();
  }
}

bool FanOut::any_well() const {
  return std::ranges::any_of(std::span(parts_).first(count_), is_well);
}

// Returns true if anything happened.
bool FanOut::advance() {
  bool busy = false;
  for (Part& part : std::span(parts_).first(count_)) {
    if (part.mending || !is_well(part)) continue;
    busy = part.flow->advance() || busy;
  }
  return busy;
}

void FanOut::look_after_lost() {
  for (Part& part : std::span(parts_).first(count_)) {
    if (part.mending || part.flow->over() || is_well(part)) continue;
    part.mending = true;
    part.last = Connector::kWaits;
    part.flow->lost();
  }
}

// Sleeps until an event comes for a connected flow, or the next attempt to reconnect is due.
void FanOut::sleep() {
  std::array<rdma::Queue*, ShardMap::kMaxServers> queues;
  std::size_t count = 0;
  bool mending = false;
  bool well = false;
  Nanos until = deadline_.at();
  rdma::PollMode mode = rdma::PollMode::kAdaptive;
  for (Part& part : std::span(parts_).first(count_)) {
    Engine& engine = part.flow->engine();
    if (part.mending) {
      mending = true;
      continue;
    }
    well = true;
    const Nanos at = part.flow->sleep_until();
    if (at == 0 || engine.session.link.take_room()) return;
    until = std::min(until, at);
    if (engine.session.link.is_watched())
      until = std::min(until, engine.session.link.ask_watch(clock_.now()));
    mode = engine.session.link.poll_mode();
    queues[count++] = engine.session.link.queue();
  }
  if (mending) {
    Nanos due = until;
    for (Part& part : std::span(parts_).first(count_)) {
      if (part.mending) due = std::min(due, part.flow->engine().connector.next_attempt(deadline_));
    }
    until = std::min(until, well ? std::max(due, mend_from_) : due);
  }
  if (count != 0) return rdma::wait_any(std::span(queues).first(count), mode, {clock_, until});
  parts_.front().flow->engine().session.link.sleep_until(until);
}

// Time for one attempt: an equal part for each flow that is not over. Beside connected flows it is
// an eighth of that, so that there is time for more than one attempt.
Deadline FanOut::turn() const {
  constexpr Nanos kBesideWell = 8;
  const Nanos now = clock_.now();
  const Nanos part = (deadline_.at() - now) / static_cast<Nanos>(count_);
  return {clock_, now + (any_well() ? part / kBesideWell : part)};
}

// Makes the attempt that has been due for longest. False: none is due.
bool FanOut::mend_one() {
  Part* next = nullptr;
  for (Part& part : std::span(parts_).first(count_)) {
    if (!part.mending) continue;
    if (part.flow->engine().connector.next_attempt(deadline_) >= deadline_.at()) {
      // The time left is too short for an attempt. End without sleeping: the next operation has it.
      part.flow->fail_rest(part.last);
      return true;
    }
    if (next == nullptr || part.flow->engine().connector.next_attempt(deadline_) <
                               next->flow->engine().connector.next_attempt(deadline_)) {
      next = &part;
    }
  }
  if (next == nullptr || next->flow->engine().connector.next_attempt(deadline_) > clock_.now())
    return false;
  Engine& engine = next->flow->engine();
  const Nanos begin = clock_.now();
  const Status mended = engine.connector.connect_once(turn());
  constexpr Nanos kOthersPart = 3;  // the time for the other flows, in times of this attempt
  mend_from_ = clock_.now() + kOthersPart * (clock_.now() - begin);
  if (mended) {
    next->mending = false;
    next->flow->mended();
  } else {
    next->last = mended.error();
    if (!Connector::worth_repeating(next->last)) next->flow->fail_rest(next->last);
  }
  return true;
}

}  // namespace rkv::client
