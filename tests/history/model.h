// What one key does: its states, and what an operation makes of a state. As the server's page says
// (server/LINEARIZABLE.md, server/README.md) and nothing of how it is done.
//
// Versions: greater = later. A state remembers the greatest version that anybody was told of (the
// floor), so that no later write may have a smaller one. The version of a write without an answer
// is not known until somebody reads it.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/history/history.h"

namespace rkv::history {

// An operation with texts as numbers: equal texts of one key have equal numbers.
struct Step {
  std::size_t index = 0;  // in the key's history
  Function f = Function::kGet;
  Outcome outcome = Outcome::kOk;
  Code error{};
  std::int64_t argument = 0;  // put: the text; incr: to add; counter_cas: desired
  std::int64_t expected = 0;
  std::uint64_t if_version = 0;
  std::int64_t ttl_ns = 0;
  Content::Kind told = Content::Kind::kAbsent;
  std::int64_t told_datum = 0;
  std::uint64_t version = 0;
  bool expires = false;
  Nanos invoked = 0;
  Nanos end = kForever;
  // It need not have happened: no answer came, or it may have been before the part of a history
  // that is looked at.
  bool optional = false;

  // Whether two have the same effect at the same times, so that it does not matter which happened.
  bool same_as(const Step& other) const;
};

struct State {
  enum class Kind : std::uint8_t {
    kAbsent,
    kText,
    kNumber,
    kAny,  // where a part of a history begins: whatever is told of it is true
  };
  static constexpr std::uint32_t kNoLease = 0;
  static constexpr std::uint32_t kAnyLease = 0xFFFFFFFF;

  Kind kind = Kind::kAbsent;
  // Whose time to live the key has: index of that put + 1.
  std::uint32_t lease = kNoLease;
  std::int64_t datum = 0;     // the text's number, or the number
  std::uint64_t version = 0;  // of the present content; 0 = nobody was told yet
  std::uint64_t floor = 0;
  bool operator==(const State&) const = default;
  std::size_t hash() const;
};

// The state after the step, if the step can be carried out in this one and its answer fits; for one
// without an answer, if it has an effect.
bool apply(const Step& step, State& state);
// The key's time has come.
void vanish(State& state);

// The operations on one key as steps. Such as say nothing are left out: reads without an answer,
// writes that were certainly not done for reasons that are not the key's.
struct KeySteps {
  std::vector<Step> steps;
  std::vector<std::string> texts;  // by their numbers
};
KeySteps steps_of(const History& key_history);

// "nothing", "\"v\" version 9": for people.
std::string describe(const State& state, const std::vector<std::string>& texts);

}  // namespace rkv::history
