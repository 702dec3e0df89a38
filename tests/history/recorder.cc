#include "tests/history/recorder.h"

#include <algorithm>
#include <utility>

#include "common/bytes.h"

namespace rkv::history {

Recorder::Recorder(const Clock& clock, int first, int stride, Session session)
    : clock_(clock), next_process_(first), stride_(stride), session_(session) {}

Nanos Recorder::stamp() {
  last_ = std::max(last_ + 1, clock_.now());
  return last_;
}

std::size_t Recorder::begin(Call call, std::size_t lane) {
  while (lanes_.size() <= lane)
    lanes_.push_back(std::exchange(next_process_, next_process_ + stride_));
  history_.push_back({.process = lanes_[lane], .call = std::move(call)});
  history_.back().invoked = stamp();
  return history_.size() - 1;
}

// A client whose request went unanswered closes its connection, and the server ends the old session
// before it serves the new one. So after an answered call that began later, the unanswered request
// has happened or never will (server/LINEARIZABLE.md, 17).
void Recorder::settle(const Operation& answered) {
  std::erase_if(unsettled_, [&](std::size_t index) {
    if (history_[index].returned >= answered.invoked) return false;
    history_[index].until = answered.returned;
    return true;
  });
}

void Recorder::finish(std::size_t op, Answer answer) {
  Operation& operation = history_[op];
  operation.answer = std::move(answer);
  operation.returned = stamp();
  if (operation.answer.outcome != Outcome::kInfo) {
    if (tells(operation.answer)) settle(operation);
    return;
  }
  ++unanswered_;
  if (session_ == Session::kEnds) unsettled_.push_back(op);
  // A process does not appear again after an info.
  const auto lane = std::ranges::find(lanes_, operation.process);
  *lane = std::exchange(next_process_, next_process_ + stride_);
}

void Recorder::failed(std::size_t op, const Error& error) {
  const bool maybe = error.write == WriteOutcome::kMayHaveHappened;
  finish(op, {.outcome = maybe ? Outcome::kInfo : Outcome::kFail, .error = error.code});
}

void Recorder::end(std::size_t op, const Result<Value>& got) {
  end(op, got, got ? got->value : std::string());
}

void Recorder::end(std::size_t op, const Result<Value>& got, std::string text) {
  if (!got && got.error().code == Code::kNotFound) return finish(op, {.outcome = Outcome::kOk});
  if (!got) return failed(op, got.error());
  Answer answer{.outcome = Outcome::kOk,
                .content = Content::of(std::move(text)),
                .version = got->version,
                .expires_at_ms = got->expires_at_ms};
  if (got->is_counter && got->value.size() == sizeof(std::int64_t)) {
    const auto* number = reinterpret_cast<const std::byte*>(got->value.data());
    answer.content = Content::of(load_le<std::int64_t>(number));
  }
  finish(op, std::move(answer));
}

void Recorder::end(std::size_t op, const Result<std::uint64_t>& written) {
  if (!written) return failed(op, written.error());
  finish(op, {.outcome = Outcome::kOk, .version = *written});
}

void Recorder::end(std::size_t op, const Result<Counter>& counted) {
  if (!counted) return failed(op, counted.error());
  finish(op, {.outcome = Outcome::kOk,
              .content = Content::of(counted->number),
              .version = counted->version});
}

void Recorder::end(std::size_t op, const Result<OneSidedCounter>& opened) {
  if (!opened) return failed(op, opened.error());
  finish(op, {.outcome = Outcome::kOk});
}

void Recorder::also_maybe(std::size_t op, Call call) {
  const Operation& done = history_[op];
  Operation maybe{.process = std::exchange(next_process_, next_process_ + stride_),
                  .call = std::move(call),
                  .invoked = done.invoked,
                  .returned = done.returned};
  if (tells(done.answer)) {
    maybe.until = done.returned;
  } else if (session_ == Session::kEnds) {
    unsettled_.push_back(history_.size());
  }
  history_.push_back(std::move(maybe));
}

void Recorder::end(std::size_t op, const Result<CounterSwap>& swapped) {
  if (!swapped) return failed(op, swapped.error());
  finish(op, {.outcome = swapped->done ? Outcome::kOk : Outcome::kFail,
              .error = swapped->done ? Code{} : Code::kConflict,
              .content = Content::of(swapped->number),
              .version = swapped->version});
}

}  // namespace rkv::history
