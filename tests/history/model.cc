#include "tests/history/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "common/random.h"

namespace rkv::history {
namespace {

using Kind = State::Kind;

Kind kind_of(Content::Kind kind) {
  if (kind == Content::Kind::kAbsent) return Kind::kAbsent;
  return kind == Content::Kind::kText ? Kind::kText : Kind::kNumber;
}

// The version of the present content is reported. Returns false if it cannot be.
bool see_version(State& state, std::uint64_t version) {
  if (version == 0 || version == state.version) return true;
  if (state.version != 0 || version <= state.floor) return false;
  state.version = version;
  state.floor = version;
  return true;
}

// True if the content may have this version, which a condition names.
bool has_version(State& state, std::uint64_t version) {
  if (state.version != 0) return state.version == version;
  return see_version(state, version);
}

bool write_version(State& state, std::uint64_t version) {
  if (version != 0 && version <= state.floor) return false;
  state.version = version;
  if (version != 0) state.floor = version;
  return true;
}

bool set(State& state, Kind kind, std::int64_t datum, const Step& step) {
  state.kind = kind;
  state.datum = datum;
  state.lease = step.ttl_ns != 0 ? static_cast<std::uint32_t>(step.index) + 1 : State::kNoLease;
  return write_version(state, step.version);
}

bool erase(State& state, const Step& step) {
  vanish(state);
  if (!write_version(state, step.version)) return false;
  state.version = 0;  // a removal has a version; absence has none
  return true;
}

// An answer says that the key is absent. Returns false if that is impossible.
bool see_absent(State& state) {
  if (state.kind == Kind::kAny) vanish(state);
  return state.kind == Kind::kAbsent;
}

// An answer says that the key has this content. Returns false if that is impossible.
bool see(State& state, Kind kind, std::int64_t datum, std::uint64_t version) {
  if (kind == Kind::kAbsent) return see_absent(state);
  if (state.kind == Kind::kAny) {
    state.kind = kind;
    state.datum = datum;
    state.lease = State::kAnyLease;
  }
  return state.kind == kind && state.datum == datum && see_version(state, version);
}

bool get(const Step& step, State& state) {
  if (step.outcome == Outcome::kFail) {
    if (step.error == Code::kNotFound) return see_absent(state);
    // Refused because the key is text: the operation needs a counter.
    return step.error == Code::kWrongType &&
           (state.kind == Kind::kText || state.kind == Kind::kAny);
  }
  if (!see(state, kind_of(step.told), step.told_datum, step.version)) return false;
  if (state.kind == Kind::kAbsent || state.lease == State::kAnyLease) return true;
  return step.expires == (state.lease != State::kNoLease);
}

bool put(const Step& step, State& state) {
  const bool any = state.kind == Kind::kAny;
  if (step.outcome == Outcome::kFail) {
    return step.error == Code::kWrongType && (any || state.kind == Kind::kNumber);
  }
  return state.kind != Kind::kNumber && set(state, Kind::kText, step.argument, step);
}

bool put_if_absent(const Step& step, State& state) {
  const bool any = state.kind == Kind::kAny;
  if (step.outcome == Outcome::kFail) {
    return step.error == Code::kConflict && (any || state.kind != Kind::kAbsent);
  }
  return (any || state.kind == Kind::kAbsent) && set(state, Kind::kText, step.argument, step);
}

// True if the reason why a write on condition of a version was refused fits the state.
bool refused_version(const Step& step, State& state) {
  if (step.error == Code::kNotFound) return see_absent(state);
  if (state.kind == Kind::kAny) return true;
  if (state.kind == Kind::kAbsent) return false;
  if (step.error == Code::kConflict) return state.version == 0 || state.version != step.if_version;
  return step.error == Code::kWrongType && step.f == Function::kPutIfVersion &&
         state.kind == Kind::kNumber && has_version(state, step.if_version);
}

bool put_if_version(const Step& step, State& state) {
  if (step.outcome == Outcome::kFail) return refused_version(step, state);
  if (state.kind == Kind::kAny) {
    state.floor = std::max(state.floor, step.if_version);
  } else if (state.kind != Kind::kText || !has_version(state, step.if_version)) {
    return false;
  }
  return set(state, Kind::kText, step.argument, step);
}

bool remove(const Step& step, State& state) {
  if (step.outcome == Outcome::kFail) return step.error == Code::kNotFound && see_absent(state);
  return state.kind != Kind::kAbsent && erase(state, step);
}

bool remove_if_version(const Step& step, State& state) {
  if (step.outcome == Outcome::kFail) return refused_version(step, state);
  if (state.kind == Kind::kAny) {
    state.floor = std::max(state.floor, step.if_version);
  } else if (state.kind == Kind::kAbsent || !has_version(state, step.if_version)) {
    return false;
  }
  return erase(state, step);
}

bool touch(const Step& step, State& state) {
  if (step.outcome == Outcome::kFail) return step.error == Code::kNotFound && see_absent(state);
  return state.kind != Kind::kAbsent && set(state, state.kind, state.datum, step);
}

bool incr(const Step& step, State& state) {
  if (step.outcome == Outcome::kFail && step.error == Code::kWrongType) {
    return state.kind == Kind::kText || state.kind == Kind::kAny;
  }
  std::int64_t sum = step.told_datum;
  bool fits = true;
  if (state.kind != Kind::kAny) {
    if (state.kind == Kind::kText) return false;
    const std::int64_t before = state.kind == Kind::kNumber ? state.datum : 0;
    fits = !__builtin_add_overflow(before, step.argument, &sum);
  } else {
    state.lease = State::kAnyLease;
  }
  if (step.outcome == Outcome::kFail) {
    return step.error == Code::kOutOfRange && (!fits || state.kind == Kind::kAny);
  }
  if (!fits || (step.outcome == Outcome::kOk && sum != step.told_datum)) return false;
  // Counting does not change a time to live.
  state.kind = Kind::kNumber;
  state.datum = sum;
  return write_version(state, step.version);
}

bool open_counter(const Step& step, State& state) {
  if (step.outcome == Outcome::kFail) {
    return step.error == Code::kWrongType &&
           (state.kind == Kind::kText || state.kind == Kind::kAny);
  }
  if (state.kind == Kind::kText) return false;
  if (state.kind == Kind::kAny) return true;  // it may be any number
  if (state.kind == Kind::kNumber) {
    if (state.version == 0) return !step.optional;  // has no effect
    state.floor = std::min(state.floor, state.version - 1);
    state.version = 0;
    return true;
  }
  state.kind = Kind::kNumber;
  state.datum = 0;
  return write_version(state, 0);
}

bool counter_cas(const Step& step, State& state) {
  if (step.outcome == Outcome::kFail) {
    if (step.error == Code::kNotFound) return see_absent(state);
    if (step.error == Code::kWrongType) {
      return state.kind == Kind::kText || state.kind == Kind::kAny;
    }
    return step.error == Code::kConflict && step.told_datum != step.expected &&
           see(state, Kind::kNumber, step.told_datum, step.version);
  }
  if (!see(state, Kind::kNumber, step.expected, 0)) return false;
  if (step.outcome == Outcome::kOk && step.told_datum != step.argument) return false;
  state.datum = step.argument;
  return write_version(state, step.version);
}

// The restored content may be older than the last one, and so may its version; new versions are
// greater.
bool restart(const Step& step, State& state) {
  state.kind = kind_of(step.told);
  state.datum = step.told_datum;
  state.version = step.version;
  state.floor = std::max(state.floor, step.version);
  state.lease = step.expires ? State::kAnyLease : State::kNoLease;
  return true;
}

}  // namespace

bool Step::same_as(const Step& other) const {
  return f == other.f && outcome == other.outcome && argument == other.argument &&
         expected == other.expected && if_version == other.if_version && version == other.version &&
         ttl_ns == 0 && other.ttl_ns == 0;
}

std::size_t State::hash() const {
  std::uint64_t bits = mix64(static_cast<std::uint64_t>(datum) + static_cast<std::uint64_t>(kind));
  bits = mix64(bits ^ version);
  bits = mix64(bits ^ floor);
  return mix64(bits ^ lease);
}

void vanish(State& state) {
  state.kind = Kind::kAbsent;
  state.lease = State::kNoLease;
  state.datum = 0;
  state.version = 0;
}

bool apply(const Step& step, State& state) {
  // Whatever the step did to an unknown state, the result is a possible unknown state.
  if (step.optional && state.kind == Kind::kAny) return false;
  switch (step.f) {
    case Function::kGet:
      return get(step, state);
    case Function::kPut:
      return put(step, state);
    case Function::kPutIfAbsent:
      return put_if_absent(step, state);
    case Function::kPutIfVersion:
      return put_if_version(step, state);
    case Function::kRemove:
      return remove(step, state);
    case Function::kRemoveIfVersion:
      return remove_if_version(step, state);
    case Function::kTouch:
      return touch(step, state);
    case Function::kIncr:
      return incr(step, state);
    case Function::kCounterCas:
      return counter_cas(step, state);
    case Function::kOpenCounter:
      return open_counter(step, state);
    case Function::kRestart:
      return restart(step, state);
  }
  return false;
}

namespace {

Step step_of(const Operation& op, std::size_t index) {
  Step step{.index = index,
            .f = op.call.f,
            .outcome = op.answer.outcome,
            .error = op.answer.error,
            .argument = op.call.number,
            .expected = op.call.expected,
            .if_version = op.call.if_version,
            .ttl_ns = op.call.ttl.count() * kNanosPerMs,
            .told = op.answer.content.kind,
            .told_datum = op.answer.content.number,
            .expires = op.answer.expires_at_ms != 0,
            .invoked = op.invoked,
            .end = op.end(),
            .optional = op.answer.outcome == Outcome::kInfo};
  if (!step.optional) step.version = op.answer.version;
  return step;
}

bool is_put(Function f) {
  return f == Function::kPut || f == Function::kPutIfAbsent || f == Function::kPutIfVersion;
}

}  // namespace

KeySteps steps_of(const History& key_history) {
  std::unordered_set<std::string> seen;
  for (const Operation& op : key_history) {
    if (op.answer.content.kind == Content::Kind::kText) seen.insert(op.answer.content.text);
  }
  // Texts that were never read are equivalent, because no answer distinguishes them.
  static constexpr std::int64_t kUnseen = 0;
  std::unordered_map<std::string, std::int64_t> numbers;
  KeySteps all{.steps = {}, .texts = {"(a value that nobody read)"}};
  const auto number_of = [&](const std::string& text) {
    if (!seen.contains(text)) return kUnseen;
    const auto next = static_cast<std::int64_t>(all.texts.size());
    const auto [at, fresh] = numbers.try_emplace(text, next);
    if (fresh) all.texts.push_back(text);
    return at->second;
  };
  for (std::size_t i = 0; i < key_history.size(); ++i) {
    const Operation& op = key_history[i];
    const bool maybe = op.answer.outcome == Outcome::kInfo && is_write(op.call.f);
    if (!maybe && !tells(op.answer)) continue;
    Step step = step_of(op, i);
    if (is_put(op.call.f)) step.argument = number_of(op.call.text);
    if (step.told == Content::Kind::kText) step.told_datum = number_of(op.answer.content.text);
    all.steps.push_back(step);
  }
  return all;
}

std::string describe(const State& state, const std::vector<std::string>& texts) {
  std::string text;
  switch (state.kind) {
    case Kind::kAbsent:
      return "nothing";
    case Kind::kAny:
      return "anything";
    case Kind::kNumber:
      text = std::to_string(state.datum);
      break;
    case Kind::kText:
      text = fmt::format("\"{}\"", texts.at(static_cast<std::size_t>(state.datum)));
      break;
  }
  text += state.version != 0 ? fmt::format(" version {}", state.version)
                             : fmt::format(" of a version above {}", state.floor);
  if (state.lease != State::kNoLease) text += ", expires";
  return text;
}

}  // namespace rkv::history
