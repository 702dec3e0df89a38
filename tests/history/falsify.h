// Makes a right history wrong, to see that the checker notices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tests/history/history.h"

namespace rkv::history {

// REQUIRES: all of one key. A read is made to tell what had been replaced before it was called;
// false when operation `at` is no read, or nothing had been replaced.
inline bool make_stale(std::span<Operation> key_history, std::size_t at) {
  Operation& read = key_history[at];
  if (read.call.f != Function::kGet || read.answer.outcome != Outcome::kOk) return false;
  std::uint64_t newest = 0;  // that was acknowledged before the read was called
  for (const Operation& op : key_history) {
    const bool before = op.answer.outcome == Outcome::kOk && op.returned < read.invoked;
    if (before) newest = std::max(newest, op.answer.version);
  }
  for (const Operation& old : key_history) {
    const bool replaced = old.call.f == Function::kPut && old.answer.outcome == Outcome::kOk &&
                          old.answer.version != 0 && old.answer.version < newest;
    if (!replaced) continue;
    read.answer.content = Content::of(old.call.text);
    read.answer.version = old.answer.version;
    return true;
  }
  return false;
}

// REQUIRES: all of one key, in the order of the calls. Takes away an addition that was told of, so
// that it is as if it had been lost; of a one-sided counter, where no version tells changes apart.
// False when there is none of which it is certain that nothing else explains the next number.
inline bool lose_an_addition(History& key_history) {
  const auto adds = [](const Operation& op) {
    return op.call.f == Function::kIncr && op.answer.outcome == Outcome::kOk &&
           op.answer.version == 0;
  };
  Nanos others_until = 0;  // of what was called before the three
  for (std::size_t i = 1; i + 2 < key_history.size(); ++i) {
    const Operation& before = key_history[i - 1];
    const Operation& lost = key_history[i];
    const Operation& after = key_history[i + 1];
    const bool alone = others_until < before.invoked && before.returned < lost.invoked &&
                       lost.returned < after.invoked && after.returned < key_history[i + 2].invoked;
    if (alone && adds(before) && adds(lost) && adds(after) && lost.call.number != 0) {
      key_history.erase(key_history.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    others_until = std::max(others_until, before.end());
  }
  return false;
}

}  // namespace rkv::history
