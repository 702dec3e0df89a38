// Decides whether a linearizable store can have produced a history: a store that carries out the
// operations on each key one at a time, each at an instant between its call and its return.
//
//   if (const auto violation = check(history)) std::puts(violation->text.c_str());
//
// Keys are judged one by one: a history is linearizable if the history of each key is (Herlihy and
// Wing, "Linearizability: a correctness condition for concurrent objects", 1990, theorem 1). Only
// versions are checked over all keys: README.md has the promise.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "tests/history/history.h"
#include "tests/history/search.h"

namespace rkv::history {

struct CheckLimits {
  SearchLimits search{};
  // The most lines of a window to print.
  std::size_t shown = 60;
};

struct Violation {
  std::string key = {};
  std::string what = {};  // one sentence
  History window = {};    // operations that cannot all be true, in the order of their calls
  std::string text = {};  // the whole report for people
  bool given_up = false;  // nothing is proved: the search found too many possibilities
};

// Returns the earliest violation of the first key that has a violation.
std::optional<Violation> check(const History& history, const CheckLimits& limits = {});

}  // namespace rkv::history
