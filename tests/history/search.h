// Whether the operations on one key can be put in an order: Wing and Gong's search ("Testing and
// verifying concurrent objects", 1993) as just-in-time linearization with memory (Lowe, "Testing
// for linearizability", 2016).
//
// It goes through the events - calls, returns, ends of life - in the order of time and keeps all
// configurations that explain what has been told so far: a state, and which of the operations under
// way have happened. Only when an operation returns does it have to have happened; then each
// configuration in which it has not is continued by every operation that can come next.
//
// Invariants:
//  S1  A configuration is dropped only for another of the same state in which the same writes with
//      an answer have happened, the same or more reads, and the same or fewer writes without an
//      answer: whatever can follow upon the one can follow upon the other. ("Reads" are all
//      operations that change nothing.)
//  S2  A read whose answer fits the state happens at once (by S1).
//  S3  Of two operations without an answer that do the same, the one happens first that ends first.
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
  Nanos expiry_late = 200 * kNanosPerMs;  // how long a key may outlive its time
  // Configurations to look at for one event. Beyond, the search gives up.
  std::size_t configurations = 200'000;
};

struct SearchResult {
  enum class Verdict : std::uint8_t { kLinearizable, kImpossible, kGivenUp };
  Verdict verdict = Verdict::kLinearizable;
  // kImpossible: the first operation whose return leaves no explanation (an index as of Step), or,
  // if `outlived`, the put whose time to live the key outlived.
  std::size_t index = 0;
  bool outlived = false;
  Nanos time = 0;
  // The states that the key could be in before.
  std::vector<State> states{};
};

// `first`: the state before the first operation.
SearchResult search(std::span<const Step> steps, const State& first, const SearchLimits& limits);

}  // namespace rkv::history
