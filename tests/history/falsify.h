// Makes a right history wrong, to prove that the checker notices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "tests/history/history.h"

namespace rkv::history {

// Makes a read return a value that had been replaced before its call. Returns false if operation
// `at` is not a read, or no value had been replaced. REQUIRES: all operations are on one key.
inline bool make_stale(std::span<Operation> key_history, std::size_t at) {
  Operation& read = key_history[at];
  if (read.call.f != Function::kGet || read.answer.outcome != Outcome::kOk) return false;
  std::uint64_t newest = 0;  // acknowledged before the read was called
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

// Removes an acknowledged addition, as if it had been lost: for a one-sided counter, whose changes
// have no versions. Returns false if no addition certainly explains the next number alone.
// REQUIRES: all operations are on one key, in the order of their calls.
inline bool lose_an_addition(History& key_history) {
  const auto adds = [](const Operation& op) {
    return op.call.f == Function::kIncr && op.answer.outcome == Outcome::kOk &&
           op.answer.version == 0;
  };
  Nanos others_until = 0;  // end of the operations called before the three
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
