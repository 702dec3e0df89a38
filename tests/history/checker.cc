#include "tests/history/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/history/window.h"

namespace rkv::history {
namespace {

struct Found {
  Nanos time = 0;
  Violation violation;
  Operation offending;
};

void keep_first(std::optional<Found>& first, Found other) {
  if (!first || other.time < first->time) first = std::move(other);
}

std::optional<Violation> told(std::optional<Found> found, const CheckLimits& limits) {
  if (!found) return std::nullopt;
  Violation& violation = found->violation;
  violation.text = fmt::format("key \"{}\": {}\n{}", violation.key, violation.what,
                               tell(violation.window, found->offending, limits.shown));
  return std::move(violation);
}

Found of_two(const Operation& earlier, const Operation& later, std::string what) {
  Found found{.time = later.returned,
              .violation = {.key = later.call.key, .what = std::move(what)},
              .offending = later};
  found.violation.window = {earlier, later};
  std::ranges::stable_sort(found.violation.window, {}, &Operation::invoked);
  return found;
}

// --------------------------------------------------------------------------------- versions

// The content that an operation gives for a version.
struct Named {
  const Operation* op;
  std::optional<Content> content;  // nothing: a touch does not know it
  std::uint64_t expires_at_ms = 0;
};

bool is_put(Function f) {
  return f == Function::kPut || f == Function::kPutIfAbsent || f == Function::kPutIfVersion;
}

Named named_by(const Operation& op) {
  if (is_put(op.call.f)) return {&op, Content::of(op.call.text)};
  if (op.call.f == Function::kTouch) return {&op, std::nullopt};
  return {&op, op.answer.content, op.answer.expires_at_ms};
}

// If the statements of two operations about one version contradict each other, returns the reason;
// else nullptr.
const char* contradiction(const Named& one, const Named& other) {
  const auto writes = [](const Named& named) {
    return named.op->answer.outcome == Outcome::kOk && is_write(named.op->call.f) &&
           named.op->call.f != Function::kRestart;
  };
  if (one.op->call.key != other.op->call.key) return "one version names two keys";
  if (writes(one) && writes(other)) return "two writes were given one version";
  if (one.content && other.content && one.content != other.content)
    return "one version names two values";
  const bool both_read = one.op->call.f == Function::kGet && other.op->call.f == Function::kGet;
  if (both_read && one.expires_at_ms != other.expires_at_ms) {
    return "one version is said to expire at two times";
  }
  return nullptr;
}

std::optional<Found> check_names(const History& history) {
  std::optional<Found> first;
  std::unordered_map<std::uint64_t, Named> names;
  std::unordered_map<std::uint64_t, Named> read;  // reads report the expiry
  for (const Operation& op : history) {
    if (op.answer.version == 0 || op.answer.outcome == Outcome::kInfo) continue;
    const std::uint64_t version = op.answer.version;
    const Named named = named_by(op);
    const Named known = names.try_emplace(version, named).first->second;
    const Named known_read =
        op.call.f == Function::kGet ? read.try_emplace(version, named).first->second : known;
    for (const Named& other : {known, known_read}) {
      const char* what = other.op != &op ? contradiction(other, named) : nullptr;
      if (what == nullptr) continue;
      keep_first(first, of_two(*other.op, op, fmt::format("{} (version {})", what, version)));
    }
  }
  return first;
}

// A write that is called after a version was reported gets a greater version.
std::optional<Found> check_rising(const History& history) {
  struct Event {
    Nanos time;
    bool returns;
    const Operation* op;
  };
  std::vector<Event> events;
  for (const Operation& op : history) {
    if (op.answer.version == 0 || op.answer.outcome == Outcome::kInfo) continue;
    if (op.call.f == Function::kRestart) continue;
    events.push_back({op.invoked, false, &op});
    events.push_back({op.returned, true, &op});
  }
  std::ranges::stable_sort(events, {},
                           [](const Event& event) { return std::pair(event.time, event.returns); });
  std::optional<Found> first;
  const Operation* greatest = nullptr;
  for (const auto& [time, returns, op] : events) {
    if (returns) {
      const bool more = greatest == nullptr || op->answer.version > greatest->answer.version;
      if (more) greatest = op;
      continue;
    }
    const bool writes = op->answer.outcome == Outcome::kOk && is_write(op->call.f);
    if (!writes || greatest == nullptr || op->answer.version > greatest->answer.version) continue;
    keep_first(
        first,
        of_two(*greatest, *op,
               fmt::format(
                   "version {} was reported before this write was called, which got version {}",
                   greatest->answer.version, op->answer.version)));
  }
  return first;
}

// ------------------------------------------------------------------------------------- keys

// Every text that was read must have been written.
std::optional<Found> check_origins(const History& key_history) {
  std::unordered_map<std::string, std::vector<const Operation*>> writers;
  for (const Operation& op : key_history) {
    if (is_put(op.call.f)) writers[op.call.text].push_back(&op);
    if (op.call.f == Function::kRestart) writers[op.answer.content.text].push_back(&op);
  }
  for (const Operation& op : key_history) {
    const bool reads = op.call.f == Function::kGet && op.answer.outcome == Outcome::kOk &&
                       op.answer.content.kind == Content::Kind::kText;
    if (!reads) continue;
    const Operation* closest = nullptr;
    bool possible = false;
    for (const Operation* writer : writers[op.answer.content.text]) {
      closest = writer;
      possible = writer->answer.outcome != Outcome::kFail && writer->invoked <= op.returned;
      if (possible) break;
    }
    if (possible) continue;
    if (closest == nullptr) {
      return of_two(op, op, "a value was read that nobody wrote to this key");
    }
    return of_two(*closest, op,
                  closest->answer.outcome == Outcome::kFail
                      ? "a value was read whose write had failed"
                      : "a value was read before it was written");
  }
  return std::nullopt;
}

// True if the content should have expired before the read was called.
bool outlived(const History& key_history, const Operation& read, const SearchLimits& limits) {
  const auto touches = [](const Operation& op) { return op.call.f == Function::kTouch; };
  if (std::ranges::any_of(key_history, touches)) return false;  // it may live longer
  return std::ranges::any_of(key_history, [&](const Operation& put) {
    const bool wrote = is_put(put.call.f) && put.answer.outcome == Outcome::kOk &&
                       Content::of(put.call.text) == read.answer.content;
    return wrote && put.call.ttl.count() != 0 &&
           put.returned + put.call.ttl.count() * kNanosPerMs + limits.expiry_late < read.invoked;
  });
}

std::string sentence(const SearchResult& result, const KeySteps& key, bool outlived) {
  if (result.verdict == SearchResult::Verdict::kGivenUp) {
    return "undecided: too many operations without an answer at once";
  }
  std::string before;
  for (std::size_t i = 0; i < std::min<std::size_t>(result.states.size(), 4); ++i)
    before += (i != 0 ? ", or " : "") + describe(result.states[i], key.texts);
  if (result.states.size() > 4) before += fmt::format(", or {} more", result.states.size() - 4);
  return fmt::format("{}; after all that had returned before, the key could hold {}",
                     result.outlived || outlived
                         ? "the key has outlived its time to live"
                         : "no order of the operations explains this answer",
                     before);
}

std::optional<Found> check_key(const History& key_history, const SearchLimits& limits) {
  if (auto found = check_origins(key_history)) {
    if (found->violation.window[0].invoked == found->violation.window[1].invoked) {
      found->violation.window.pop_back();
    }
    return found;
  }
  const KeySteps key = steps_of(key_history);
  const SearchResult result = search(key.steps, State{}, limits);
  if (result.verdict == SearchResult::Verdict::kLinearizable) return std::nullopt;
  const Operation& offending = key_history[result.index];
  Found found{
      .time = result.time,
      .violation = {.key = offending.call.key,
                    .what = sentence(result, key, outlived(key_history, offending, limits))},
      .offending = offending};
  found.violation.given_up = result.verdict == SearchResult::Verdict::kGivenUp;
  if (found.violation.given_up) {
    found.violation.window = {offending};
    return found;
  }
  for (const std::size_t index : smallest_window(key.steps, result, limits))
    found.violation.window.push_back(key_history[index]);
  return found;
}

}  // namespace

std::optional<Violation> check(const History& history, const CheckLimits& limits) {
  History ordered = history;
  std::ranges::stable_sort(ordered, {}, &Operation::invoked);
  std::optional<Found> first = check_names(ordered);
  if (auto found = check_rising(ordered)) keep_first(first, std::move(*found));
  if (first) return told(std::move(first), limits);

  std::map<std::string, History> keys;
  for (const Operation& op : ordered)
    keys[op.call.key].push_back(op);
  for (const auto& [key, key_history] : keys) {
    auto found = check_key(key_history, limits.search);
    // A proved violation has priority over an undecided one.
    if (found && first && found->violation.given_up && !first->violation.given_up) continue;
    if (found && first && !found->violation.given_up && first->violation.given_up) first.reset();
    if (found) keep_first(first, std::move(*found));
  }
  return told(std::move(first), limits);
}

}  // namespace rkv::history
