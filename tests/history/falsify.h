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

}  // namespace rkv::history
