// Decides whether the operations on one key can be put in an order: Wing and Gong's search
// ("Testing and verifying concurrent objects", 1993) as just-in-time linearization with memory
// (Lowe, "Testing for linearizability", 2016).
//
// The search processes the events (calls, returns, ends of life) in the order of time. It keeps all
// configurations that explain the answers so far; a configuration is a state, and the set of
// operations under way that have happened. An operation must have happened only when it returns.
// Then each configuration without it is continued by every operation that can come next.
//
// Invariants:
//   SEARCH-1  A configuration is dropped only in favour of another with the same state. In that one
//       the same answered writes have happened, the same or more reads, and the same or fewer
//       writes without an answer. So every continuation of the dropped one is a continuation of the
//       other. ("Reads" are all operations that change nothing.)
//   SEARCH-2  A read whose answer fits the state happens at once (by SEARCH-1).
//   SEARCH-3  Of two operations without an answer and with the same effect, the one that ends first
//       happens first.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/history/model.h"

namespace rkv::history {

struct SearchLimits {
  Nanos expiry_late = 200 * kNanosPerMs;  // how long a key may outlive its time to live
  // The most configurations per event. Beyond this number the search gives up.
  std::size_t configurations = 200'000;
};

struct SearchResult {
  enum class Verdict : std::uint8_t { kLinearizable, kImpossible, kGivenUp };
  Verdict verdict = Verdict::kLinearizable;
  // kImpossible: the first operation whose return leaves no explanation (an index as in Step), or,
  // if `outlived`, the put whose time to live the key outlived.
  std::size_t index = 0;
  bool outlived = false;
  Nanos time = 0;
  // The possible states of the key before it.
  std::vector<State> states{};
};

// `first`: the state before the first operation.
SearchResult search(std::span<const Step> steps, const State& first, const SearchLimits& limits);

}  // namespace rkv::history
