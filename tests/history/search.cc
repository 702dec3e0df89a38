#include "tests/history/search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <unordered_map>

namespace rkv::history {
namespace {

// Each operation under way has a slot. This is the limit for one key.
constexpr std::size_t kSlots = 256;

struct SlotSet {
  std::array<std::uint64_t, kSlots / 64> words{};
  bool has(std::size_t slot) const { return (words[slot / 64] >> slot % 64 & 1) != 0; }
  void add(std::size_t slot) { words[slot / 64] |= std::uint64_t{1} << slot % 64; }
  void drop(std::size_t slot) { words[slot / 64] &= ~(std::uint64_t{1} << slot % 64); }
  bool operator==(const SlotSet&) const = default;
};

struct Configuration {
  State state;
  SlotSet happened;
};

struct Event {
  enum class Kind : std::uint8_t {
    kCall,
    kMayVanish,
    kReturn,
    kMustBeGone
  };  // the order at one
      // instant
  Nanos time = 0;
  Kind kind = Kind::kCall;
  std::size_t step = 0;
};

bool changes(const Step& step) {
  return is_write(step.f) && step.outcome != Outcome::kFail;
}

struct StateHash {
  std::size_t operator()(const State& state) const { return state.hash(); }
};

class Search {
 public:
  Search(std::span<const Step> steps, const State& first, const SearchLimits& limits)
      : steps_(steps), limits_(limits), slot_of_(steps.size()) {
    for (std::size_t slot = kSlots; slot > 0; --slot)
      free_.push_back(slot - 1);
    now_.push_back({.state = first, .happened = {}});
  }

  SearchResult run() {
    for (const Event& event : events()) {
      if (!take(event)) return result_;
    }
    return result_;
  }

 private:
  using Layers = std::vector<std::deque<Configuration>>;

  std::vector<Event> events() const;
  bool take(const Event& event);
  bool call(std::size_t step);
  void forget(std::size_t step);
  template <class Reached>
  bool advance(const Event& event, const Reached& reached);
  bool give_up(const Event& event);
  void continue_from(const Configuration& from, std::size_t layer);
  void push(Configuration next, std::size_t layer);
  void start_anew();
  bool is_new(const Configuration& configuration);
  bool dominates(const SlotSet& one, const SlotSet& other) const;
  void settle(Configuration& configuration) const;
  bool too_late(const Configuration& before, const Step& step) const;
  bool a_twin_first(const Configuration& before, std::size_t slot) const;

  const std::span<const Step> steps_;
  const SearchLimits limits_;
  std::vector<std::size_t> slot_of_;
  std::vector<std::size_t> free_;
  std::array<std::size_t, kSlots> step_in_{};
  std::vector<std::size_t> answered_;  // slots in use
  std::vector<std::size_t> optional_;  // slots in use
  SlotSet optional_mask_;
  SlotSet pure_mask_;                // answered operations that change nothing
  std::vector<std::size_t> mortal_;  // steps whose key may expire now
  std::vector<Configuration> now_;
  std::unordered_map<State, std::vector<SlotSet>, StateHash> known_;  // during an advance
  std::size_t known_count_ = 0;
  Layers layers_;  // by the number of optional operations taken
  SearchResult result_;
};

std::vector<Event> Search::events() const {
  std::vector<Event> events;
  const auto later = [](Nanos time, Nanos by) {
    return time > kForever - by ? kForever : time + by;
  };
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    events.push_back({step.invoked, Event::Kind::kCall, i});
    if (step.end != kForever) events.push_back({step.end, Event::Kind::kReturn, i});
    if (step.ttl_ns == 0 || step.outcome == Outcome::kFail) continue;
    events.push_back({later(step.invoked, step.ttl_ns), Event::Kind::kMayVanish, i});
    const Nanos gone = later(step.end, step.ttl_ns + limits_.expiry_late);
    if (gone != kForever) events.push_back({gone, Event::Kind::kMustBeGone, i});
  }
  std::ranges::stable_sort(events, {},
                           [](const Event& event) { return std::pair(event.time, event.kind); });
  return events;
}

bool Search::take(const Event& event) {
  const Step& step = steps_[event.step];
  switch (event.kind) {
    case Event::Kind::kCall:
      return call(event.step) || give_up(event);
    case Event::Kind::kMayVanish:
      mortal_.push_back(event.step);
      return true;
    case Event::Kind::kReturn: {
      const std::size_t slot = slot_of_[event.step];
      std::vector<Configuration> without;
      if (step.optional) without = now_;
      if (!advance(event, [slot](const Configuration& c) { return c.happened.has(slot); })) {
        if (!step.optional || result_.verdict == SearchResult::Verdict::kGivenUp) return false;
        result_ = {};
      }
      // It has happened by now, or never will.
      if (step.optional) now_.insert(now_.begin(), without.begin(), without.end());
      forget(event.step);
      return true;
    }
    case Event::Kind::kMustBeGone: {
      const auto lease = static_cast<std::uint32_t>(step.index) + 1;
      if (!advance(event, [lease](const Configuration& c) { return c.state.lease != lease; })) {
        return false;
      }
      std::erase(mortal_, event.step);
      return true;
    }
  }
  return false;
}

bool Search::give_up(const Event& event) {
  result_.verdict = SearchResult::Verdict::kGivenUp;
  result_.index = steps_[event.step].index;
  result_.time = event.time;
  return false;
}

bool Search::call(std::size_t step) {
  if (free_.empty()) return false;
  const std::size_t slot = free_.back();
  free_.pop_back();
  slot_of_[step] = slot;
  step_in_[slot] = step;
  if (steps_[step].optional) {
    optional_.push_back(slot);
    optional_mask_.add(slot);
    return true;
  }
  answered_.push_back(slot);
  if (changes(steps_[step])) return true;
  pure_mask_.add(slot);
  for (Configuration& configuration : now_)
    settle(configuration);
  return true;
}

// The operation is over; another operation may get its slot.
void Search::forget(std::size_t step) {
  const std::size_t slot = slot_of_[step];
  free_.push_back(slot);
  std::erase(answered_, slot);
  std::erase(optional_, slot);
  optional_mask_.drop(slot);
  pure_mask_.drop(slot);
  for (Configuration& configuration : now_)
    configuration.happened.drop(slot);
  if (!steps_[step].optional || now_.size() == 1) return;
  start_anew();
  std::erase_if(now_, [&](const Configuration& c) { return !is_new(c); });
}

template <class Reached>
bool Search::advance(const Event& event, const Reached& reached) {
  if (std::ranges::all_of(now_, reached)) return true;
  start_anew();
  layers_.assign(1, {});
  for (const Configuration& configuration : now_) {
    if (is_new(configuration)) layers_[0].push_back(configuration);
  }
  std::vector<Configuration> after;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    while (!layers_[layer].empty()) {
      const Configuration from = layers_[layer].front();
      layers_[layer].pop_front();
      if (reached(from)) {
        after.push_back(from);
        continue;
      }
      continue_from(from, layer);
      if (known_count_ > limits_.configurations) return give_up(event);
    }
  }
  if (after.empty()) {
    result_.verdict = SearchResult::Verdict::kImpossible;
    result_.index = steps_[event.step].index;
    result_.outlived = event.kind == Event::Kind::kMustBeGone;
    result_.time = event.time;
    for (const Configuration& configuration : now_)
      result_.states.push_back(configuration.state);
    return false;
  }
  now_ = std::move(after);
  return true;
}

// Adds every operation that can come next.
void Search::continue_from(const Configuration& from, std::size_t layer) {
  for (const std::size_t slot : answered_) {
    if (from.happened.has(slot)) continue;
    Configuration next = from;
    const Step& step = steps_[step_in_[slot]];
    if (!apply(step, next.state) || too_late(from, step)) continue;
    next.happened.add(slot);
    push(next, layer);
  }
  for (const std::size_t slot : optional_) {
    if (from.happened.has(slot) || a_twin_first(from, slot)) continue;
    Configuration next = from;
    const Step& step = steps_[step_in_[slot]];
    if (!apply(step, next.state) || too_late(from, step)) continue;
    next.happened.add(slot);
    push(next, layer + 1);
  }
  const std::uint32_t lease = from.state.lease;
  if (lease == State::kNoLease) return;
  const bool mortal = lease == State::kAnyLease || std::ranges::any_of(mortal_, [&](auto step) {
                        return steps_[step].index + 1 == lease;
                      });
  if (!mortal) return;
  Configuration next = from;
  vanish(next.state);
  push(next, layer);
}

void Search::push(Configuration next, std::size_t layer) {
  settle(next);
  if (!is_new(next)) return;
  if (layers_.size() <= layer) layers_.resize(layer + 1);
  layers_[layer].push_back(next);
}

// SEARCH-2.
void Search::settle(Configuration& configuration) const {
  for (const std::size_t slot : answered_) {
    if (!pure_mask_.has(slot) || configuration.happened.has(slot)) continue;
    State after = configuration.state;
    if (apply(steps_[step_in_[slot]], after) && after == configuration.state) {
      configuration.happened.add(slot);
    }
  }
}

// True if another required write would become impossible, because its version is smaller.
bool Search::too_late(const Configuration& before, const Step& step) const {
  if (step.version == 0 || !is_write(step.f) || step.f == Function::kRestart) return false;
  return std::ranges::any_of(answered_, [&](std::size_t slot) {
    const Step& other = steps_[step_in_[slot]];
    return !before.happened.has(slot) && other.outcome == Outcome::kOk && is_write(other.f) &&
           other.f != Function::kRestart && other.version != 0 && other.version < step.version;
  });
}

// SEARCH-3.
bool Search::a_twin_first(const Configuration& before, std::size_t slot) const {
  const Step& mine = steps_[step_in_[slot]];
  return std::ranges::any_of(optional_, [&](std::size_t other) {
    const Step& twin = steps_[step_in_[other]];
    return other != slot && !before.happened.has(other) && twin.same_as(mine) &&
           std::pair(twin.end, twin.index) < std::pair(mine.end, mine.index);
  });
}

bool Search::dominates(const SlotSet& one, const SlotSet& other) const {
  for (std::size_t i = 0; i < one.words.size(); ++i) {
    // A write that has not happened may still be useful; a read only needs an explanation.
    const std::uint64_t missing = other.words[i] & ~one.words[i] & ~optional_mask_.words[i];
    const std::uint64_t wasted = one.words[i] & ~other.words[i] & ~pure_mask_.words[i];
    if (missing != 0 || wasted != 0) return false;
  }
  return true;
}

void Search::start_anew() {
  constexpr std::size_t kMany = 4096;  // clearing takes time linear in the buckets
  if (known_.bucket_count() > kMany) known_ = {};
  known_.clear();
  known_count_ = 0;
}

// SEARCH-1. Configurations with fewer optional operations come first, so a new configuration seldom
//     dominates an older one; where it does, both stay.
bool Search::is_new(const Configuration& configuration) {
  std::vector<SlotSet>& known = known_[configuration.state];
  if (std::ranges::any_of(
          known, [&](const SlotSet& one) { return dominates(one, configuration.happened); })) {
    return false;
  }
  std::erase_if(known, [&](const SlotSet& one) { return dominates(configuration.happened, one); });
  known.push_back(configuration.happened);
  ++known_count_;
  return true;
}

}  // namespace

SearchResult search(std::span<const Step> steps, const State& first, const SearchLimits& limits) {
  return Search(steps, first, limits).run();
}

}  // namespace rkv::history
