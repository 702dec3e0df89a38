#include "tests/history/window.h"

#include <fmt/format.h>

#include <algorithm>

namespace rkv::history {
namespace {

// The most operations that are tried one by one.
constexpr std::size_t kFew = 300;

bool impossible(const std::vector<Step>& steps, const State& first, const SearchLimits& limits) {
  return search(steps, first, limits).verdict == SearchResult::Verdict::kImpossible;
}

// The remaining steps if nothing is known about the time before `cut`. An operation under way at
// `cut` may have happened before it or after it.
std::vector<Step> since(const std::vector<Step>& steps, Nanos cut) {
  std::vector<Step> part;
  for (Step step : steps) {
    if (step.end < cut) continue;
    if (step.invoked < cut) {
      const bool changes = is_write(step.f) && step.outcome != Outcome::kFail;
      if (!changes) continue;
      step.optional = true;
    }
    part.push_back(step);
  }
  return part;
}

// Leaves out operations that change nothing and are not needed.
void leave_out(std::vector<Step>& steps, const State& first, const SearchLimits& limits) {
  for (std::size_t at = 0; at < steps.size();) {
    const bool changes =
        is_write(steps[at].f) && steps[at].outcome != Outcome::kFail && !steps[at].optional;
    // Optional operations stay: without one, an answer that shows its effect would look impossible.
    if (changes || steps[at].optional) {
      ++at;
      continue;
    }
    std::vector<Step> fewer = steps;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    if (impossible(fewer, first, limits)) {
      steps = std::move(fewer);
    } else {
      ++at;
    }
  }
}

}  // namespace

std::vector<std::size_t> smallest_window(const std::vector<Step>& steps, const SearchResult& result,
                                         const SearchLimits& limits) {
  std::vector<Step> whole;
  std::vector<Nanos> calls;
  for (Step step : steps) {
    if (step.invoked > result.time) continue;
    // An operation that returns later need not have happened yet.
    if (step.end > result.time) step.end = kForever;
    whole.push_back(step);
    calls.push_back(step.invoked);
  }
  std::ranges::sort(calls, std::greater{});
  // Finds the latest cut after which the rest is impossible whatever happened before: a rough
  // search first.
  State first{.kind = State::Kind::kAny};
  std::size_t low = 0;
  std::size_t high = 1;
  while (high <= calls.size() && !impossible(since(whole, calls[high - 1]), first, limits)) {
    low = high;
    high *= 2;
  }
  std::vector<Step> window = whole;
  if (high > calls.size()) {
    first = {};
  } else {
    std::size_t count = high;
    if (high <= kFew) {
      for (count = low + 1; count < high; ++count) {
        if (impossible(since(whole, calls[count - 1]), first, limits)) break;
      }
    }
    window = since(whole, calls[count - 1]);
  }
  if (window.size() <= kFew) leave_out(window, first, limits);
  std::vector<std::size_t> indexes;
  for (const Step& step : window)
    indexes.push_back(step.index);
  return indexes;
}

std::string tell(const History& window, const Operation& offending, std::size_t most_lines) {
  if (window.empty()) return "";
  const Nanos zero = window.front().invoked;
  const auto us = [&](Nanos time) {
    return time == kForever ? std::string("?")
                            : fmt::format("{:.3f}", static_cast<double>(time - zero) / 1000);
  };
  std::string text;
  const std::size_t hidden = window.size() > most_lines ? window.size() - most_lines : 0;
  if (hidden != 0) text += fmt::format("    ({} earlier operations)\n", hidden);
  for (std::size_t i = hidden; i < window.size(); ++i) {
    const Operation& op = window[i];
    const bool marked = op.process == offending.process && op.invoked == offending.invoked;
    const Nanos end = op.answer.outcome == Outcome::kInfo ? op.until : op.returned;
    text += fmt::format("{} {:>14} .. {:>14} us  process {:<4} {}\n", marked ? "==>" : "   ",
                        us(op.invoked), us(end), op.process, describe(op));
  }
  return text;
}

}  // namespace rkv::history
