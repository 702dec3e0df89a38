// Whether a history could have been told by a store that carries out the operations on each key one
// at a time, each at an instant between its call and its return.
//
//   if (const auto violation = check(history)) std::puts(violation->text.c_str());
//
// Keys are judged one by one: a history is linearizable if that of each key is (Herlihy and Wing,
// "Linearizability: a correctness condition for concurrent objects", 1990, theorem 1). Over all
// keys only versions are looked at: README.md says what is promised of them.
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
  // Lines of a window that are shown.
  std::size_t shown = 60;
};

struct Violation {
  std::string key = {};
  std::string what = {};  // one sentence
  History window = {};    // operations that cannot all be true, in the order of their calls
  std::string text = {};  // all of it for people
  bool given_up = false;  // nothing is proved: the search found too many possibilities
};

// The violation that shows first in time of the first key that has one.
std::optional<Violation> check(const History& history, const CheckLimits& limits = {});

}  // namespace rkv::history
