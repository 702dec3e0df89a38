// The part of the model for keys of one-sided counters.
#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/history.h"

namespace rkv::sim {

// The end of the last server that could be reached at `when`: later servers do not get the request.
Nanos History::alive_until(Nanos when) const {
  Nanos until = 0;
  for (const Boot& boot : boots_)
    if (boot.started <= when) until = boot.ended;
  return std::max(until, when);
}

std::optional<history::Operation> History::cell_operation(std::size_t number) const {
  const Op& op = ops_[number];
  history::Operation out{.process = static_cast<int>(number),
                         .call = call_of(number),
                         .invoked = op.called,
                         .returned = op.returned,
                         .until = op.returned};
  const bool changes = op.kind == Op::Kind::kAdd || op.kind == Op::Kind::kSwap;
  const auto number_then = history::Content::of(op.sum);
  if (op.kind == Op::Kind::kOpen) return std::nullopt;
  switch (op.outcome) {
    case Op::Outcome::kUnknown:
      if (changes) return out;
      return std::nullopt;
    case Op::Outcome::kDone:
      out.answer = {.outcome = history::Outcome::kOk, .content = number_then};
      return out;
    case Op::Outcome::kConflict:
      out.answer = {
          .outcome = history::Outcome::kFail, .error = Code::kConflict, .content = number_then};
      return out;
    case Op::Outcome::kMissing:
      out.answer = {.outcome = changes ? history::Outcome::kFail : history::Outcome::kOk,
                    .error = Code::kNotFound};
      return out;
    default:
      return std::nullopt;
  }
}

// All changes counted up to this instant are on the disk after the boot's end.
Nanos History::counted_since(const Boot& boot) const {
  if (boot.end == End::kStopped) return boot.ended;
  Nanos since = boot.started;
  for (const Op& op : ops_) {
    const bool flushed = op.kind == Op::Kind::kFlush && op.outcome == Op::Outcome::kDone;
    if (flushed && op.version.boot() == boot.number) since = std::max(since, op.called);
  }
  if (boot.end == End::kProcess && to_log_ != 0) since = std::max(since, boot.ended - to_log_);
  return std::min(since, boot.ended);
}

void History::push_survivors(std::size_t key, history::History& told) const {
  for (const Boot& boot : boots_) {
    if (boot.ended == history::kForever) continue;
    told.push_back({.process = -1000 - static_cast<int>(boot.number),
                    .call = {.f = history::Function::kGet},
                    .answer = {.outcome = history::Outcome::kOk,
                               .content = history::Content::of(*boot.survived[key]->number)},
                    .invoked = counted_since(boot),
                    .returned = boot.ended});
  }
}

// A change that was promised to be in the log, or on the disk, is in the surviving number.
void History::check_cells(const Boot& boot, std::size_t key_count) {
  for (std::size_t key = first_in_cell_; key < key_count; ++key) {
    if (!boot.survived[key] || !boot.survived[key]->number) {
      return note({.what = fmt::format("boot {} has lost a counter", boot.number), .key = key});
    }
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      const bool changed = op.kind == Op::Kind::kAdd || op.kind == Op::Kind::kSwap;
      const bool durable = op.durability == Durability::kSync ||
                           (op.durability == Durability::kWal && boot.end != End::kMachine);
      if (op.key != key || !changed || op.outcome != Op::Outcome::kDone || !durable ||
          op.called < boot.started || op.returned > boot.ended ||
          *boot.survived[key]->number >= op.sum) {
        continue;
      }
      note({.what = fmt::format("#{} was {} when it was answered, and boot {} left {}", i,
                                to_string(op.durability), boot.number, *boot.survived[key]->number),
            .key = key});
    }
  }
}

bool History::may_be_taken_back(const Op& change, const Op& flush) const {
  return std::ranges::any_of(boots_, [&](const Boot& boot) {
    return boot.ended >= change.called && boot.ended <= flush.returned;
  });
}

// The boot of a change that ended without the change and without a flush of the same client in
// between; nullptr if none.
const History::Boot* History::taken_back(const Op& change, const Op& flush) const {
  const bool flushed = std::ranges::any_of(ops_, [&](const Op& op) {
    return op.kind == Op::Kind::kFlush && op.outcome == Op::Outcome::kDone &&
           op.client == change.client && op.called >= change.returned && op.returned < flush.called;
  });
  const auto boot = std::ranges::find_if(boots_, [&](const Boot& one) {
    return one.started <= change.called && change.returned <= one.ended;
  });
  if (flushed || boot == boots_.end() || boot->ended == history::kForever) return nullptr;
  const auto& survivor = boot->survived[change.key];
  return survivor && survivor->number < change.sum ? &*boot : nullptr;
}

}  // namespace rkv::sim
