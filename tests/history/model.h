// The semantics of one key: its states, and the effect of an operation on a state. It follows the
// server's documentation (server/LINEARIZABLE.md, server/MANUAL.md), not its implementation.
//
// Versions: greater is later. A state keeps the greatest version that was reported to any client
// (the floor); no later write may have a smaller one. The version of a write without an answer is
// unknown until it is read.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/history/history.h"

namespace rkv::history {

// An operation with texts replaced by numbers: equal texts of one key have equal numbers.
struct Step {
  std::size_t index = 0;  // in the key's history
  Function f = Function::kGet;
  Outcome outcome = Outcome::kOk;
  Code error{};
  std::int64_t argument = 0;  // put: the text; incr: the summand; counter_cas: desired
  std::int64_t expected = 0;
  std::uint64_t if_version = 0;
  std::int64_t ttl_ns = 0;
  Content::Kind told = Content::Kind::kAbsent;
  std::int64_t told_datum = 0;
  std::uint64_t version = 0;
  bool expires = false;
  Nanos invoked = 0;
  Nanos end = kForever;
  // It need not have happened: it has no answer, or it may have happened before the examined part
  // of the history.
  bool optional = false;

  // True if two steps have the same effect at the same times: then it does not matter which
  // happened.
  bool same_as(const Step& other) const;
};

struct State {
  enum class Kind : std::uint8_t {
    kAbsent,
    kText,
    kNumber,
    kAny,  // at the start of a partial history: any answer is possible
  };
  static constexpr std::uint32_t kNoLease = 0;
  static constexpr std::uint32_t kAnyLease = 0xFFFFFFFF;

  Kind kind = Kind::kAbsent;
  // The put or touch that set the key's time to live: its index + 1.
  std::uint32_t lease = kNoLease;
  std::int64_t datum = 0;     // the text's number, or the number
  std::uint64_t version = 0;  // of the present content; 0 = not reported yet
  std::uint64_t floor = 0;
  bool operator==(const State&) const = default;
  std::size_t hash() const;
};

// Applies the step to the state. Returns false if the step is impossible in this state or its
// answer does not fit; for a step without an answer, also if it has no effect.
bool apply(const Step& step, State& state);
// The key expires.
void vanish(State& state);

// The operations on one key as steps. Operations without information are left out: reads without an
// answer, and writes that failed for reasons other than the key's state.
struct KeySteps {
  std::vector<Step> steps;
  std::vector<std::string> texts;  // by number
};
KeySteps steps_of(const History& key_history);

// "nothing", "\"v\" version 9": for people.
std::string describe(const State& state, const std::vector<std::string>& texts);

}  // namespace rkv::history
