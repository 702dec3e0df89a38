// Random histories of three kinds: a sequential execution with calls and returns drawn around each
// instant (right by construction); the same with one answer changed so that it is certainly wrong;
// and small arbitrary histories, compared with a search over every order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "common/random.h"
#include "tests/history/checker.h"
#include "tests/history/falsify.h"

namespace rkv::history {
namespace {

// A plain store, written independently of model.cc.
class PlainStore {
 public:
  Answer carry_out(const Call& call) {
    Entry& entry = entries_[call.key];
    if (call.f == Function::kGet) {
      return {.outcome = Outcome::kOk, .content = entry.content, .version = entry.version};
    }
    if (call.f == Function::kIncr || call.f == Function::kCounterCas) return count(call, entry);
    if (const Code refused = judge(call, entry); refused != Code{}) {
      return {.outcome = Outcome::kFail, .error = refused};
    }
    ++last_version_;
    if (call.f == Function::kTouch) {
      entry.version = last_version_;
      return {.outcome = Outcome::kOk, .version = last_version_};
    }
    const bool removes = call.f == Function::kRemove || call.f == Function::kRemoveIfVersion;
    entry.content = removes ? Content{} : Content::of(call.text);
    entry.version = removes ? 0 : last_version_;
    return {.outcome = Outcome::kOk, .version = last_version_};
  }
  std::uint64_t version_of(const std::string& key) { return entries_[key].version; }

 private:
  using Kind = Content::Kind;
  struct Entry {
    Content content = {};
    std::uint64_t version = 0;
  };

  static Code judge(const Call& call, const Entry& entry) {
    const bool absent = entry.content.kind == Kind::kAbsent;
    if (call.f == Function::kRemove || call.f == Function::kTouch)
      return absent ? Code::kNotFound : Code{};
    if (call.f == Function::kPutIfAbsent) return absent ? Code{} : Code::kConflict;
    if (call.f == Function::kPutIfVersion || call.f == Function::kRemoveIfVersion) {
      if (absent) return Code::kNotFound;
      if (entry.version != call.if_version) return Code::kConflict;
    }
    const bool puts = call.f == Function::kPut || call.f == Function::kPutIfVersion;
    return puts && entry.content.kind == Kind::kNumber ? Code::kWrongType : Code{};
  }
  Answer count(const Call& call, Entry& entry) {
    if (entry.content.kind == Kind::kText) {
      return {.outcome = Outcome::kFail, .error = Code::kWrongType};
    }
    const bool swaps = call.f == Function::kCounterCas;
    if (swaps && entry.content.kind == Kind::kAbsent) {
      return {.outcome = Outcome::kFail, .error = Code::kNotFound};
    }
    if (swaps && entry.content.number != call.expected) {
      return {.outcome = Outcome::kFail,
              .error = Code::kConflict,
              .content = entry.content,
              .version = entry.version};
    }
    entry.content = Content::of(swaps ? call.number : entry.content.number + call.number);
    entry.version = ++last_version_;
    return {.outcome = Outcome::kOk, .content = entry.content, .version = entry.version};
  }

  std::map<std::string, Entry> entries_;
  std::uint64_t last_version_ = 0;
};

struct Mix {
  std::size_t operations = 400;
  std::size_t keys = 3;
  Nanos spread = 300;         // distance of calls and returns from the instant
  std::uint64_t info_in = 0;  // one in this many writes has no answer
  bool versions = true;
};

class Generator {
 public:
  Generator(std::uint64_t seed, const Mix& mix) : random_(seed), mix_(mix) {}

  History history() {
    History history;
    for (std::size_t i = 0; i < mix_.operations; ++i)
      history.push_back(next(i));
    return history;
  }

 private:
  Operation next(std::size_t number) {
    now_ += 1 + static_cast<Nanos>(random_.below(100));
    Operation op{.process = static_cast<int>(number), .call = any_call(number)};
    const bool unanswered =
        mix_.info_in != 0 && is_write(op.call.f) && random_.below(mix_.info_in) == 0;
    // Either the answer or the request was lost.
    const bool done = !unanswered || random_.below(2) == 0;
    op.invoked = now_ - static_cast<Nanos>(random_.below(static_cast<std::uint64_t>(mix_.spread)));
    if (unanswered && random_.below(2) == 0)
      op.invoked -= 10 * mix_.spread;  // the request arrived
                                       // late
    op.returned = now_ + static_cast<Nanos>(random_.below(static_cast<std::uint64_t>(mix_.spread)));
    if (done) op.answer = store_.carry_out(op.call);
    if (unanswered) op.answer = {.outcome = Outcome::kInfo, .error = Code::kDisconnected};
    if (unanswered && random_.below(2) == 0) op.until = op.returned;
    if (!mix_.versions) op.answer.version = 0;
    return op;
  }

  Call any_call(std::size_t number) {
    const std::uint64_t which = random_.below(mix_.keys);
    Call call{.key = fmt::format("k{}", which)};
    call.text = fmt::format("v{}", number);
    const bool counts = which % 3 == 2 && random_.below(20) != 0;
    const std::uint64_t choice = random_.below(100);
    if (choice < 45) {
      call.f = Function::kGet;
    } else if (choice >= 90) {
      call.f = choice < 92 ? Function::kTouch : Function::kRemove;
    } else if (counts) {
      call.f = choice < 80 ? Function::kIncr : Function::kCounterCas;
      call.number = static_cast<std::int64_t>(random_.below(3));
      call.expected = static_cast<std::int64_t>(random_.below(20));
    } else if (choice < 70) {
      call.f = Function::kPut;
    } else if (choice < 80) {
      call.f = Function::kPutIfAbsent;
    } else if (mix_.versions) {
      call.f = choice < 88 ? Function::kPutIfVersion : Function::kRemoveIfVersion;
      call.if_version = random_.below(3) == 0
                            ? 1 + random_.below(number + 1)
                            : std::max<std::uint64_t>(1, store_.version_of(call.key));
    }
    return call;
  }

  Random random_;
  const Mix mix_;
  PlainStore store_;
  Nanos now_ = 1'000'000;
};

TEST(RandomHistories, OfASequentialExecutionAreAccepted) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Mix mix;
    mix.spread = static_cast<Nanos>(100 + seed % 7 * 150);
    mix.info_in = seed % 3 == 0 ? 0 : 5 + seed % 40;
    mix.versions = seed % 5 != 0;
    if (!mix.versions) mix.spread = 200;
    const auto violation = check(Generator(seed, mix).history());
    ASSERT_FALSE(violation) << "seed " << seed << "\n" << violation->text;
  }
}

// Changes one answer so that it cannot be true. Returns false if this answer cannot be changed so.
bool falsify(History& history, std::size_t at, std::uint64_t how) {
  Operation& op = history[at];
  if (op.answer.outcome != Outcome::kOk) return false;
  if (op.call.f == Function::kIncr) {
    // Versions fix the order of all writes, and so the sum.
    op.answer.content.number += 1;
    return true;
  }
  if (op.call.f != Function::kGet) return false;
  // The key exists, and no write is under way meanwhile.
  const bool quiet = std::ranges::none_of(history, [&](const Operation& other) {
    return other.call.key == op.call.key && is_write(other.call.f) &&
           other.invoked <= op.returned && other.end() >= op.invoked;
  });
  if (op.answer.content.kind != Content::Kind::kAbsent && quiet && how % 2 == 0) {
    op.answer.content = {};
    op.answer.version = 0;
    return true;
  }
  History key_history;
  std::size_t mine = 0;
  for (std::size_t i = 0; i < history.size(); ++i) {
    if (history[i].call.key != op.call.key) continue;
    if (i == at) mine = key_history.size();
    key_history.push_back(history[i]);
  }
  if (!make_stale(key_history, mine)) return false;
  op = key_history[mine];
  return true;
}

TEST(RandomHistories, WithOneWrongAnswerAreRejected) {
  Random random(7);
  std::size_t changed = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Mix mix;
    mix.operations = 200;
    mix.spread = 50 + static_cast<Nanos>(seed);
    History history = Generator(seed, mix).history();
    std::size_t tries = 0;
    std::size_t at = random.below(history.size());
    while (!falsify(history, at, seed) && ++tries < 1000)
      at = random.below(history.size());
    ASSERT_LT(tries, 1000U);
    ++changed;
    const auto violation = check(history);
    ASSERT_TRUE(violation) << "seed " << seed << ": " << describe(history[at]) << " was accepted";
    EXPECT_FALSE(violation->given_up);
    EXPECT_FALSE(violation->window.empty());
  }
  EXPECT_EQ(changed, 150U);
}

// ------------------------------------------------------------------------- against every order

// True if some order of the required steps and any of the optional ones explains all answers.
bool some_order_fits(const std::vector<Step>& steps, std::uint32_t happened, const State& state) {
  bool complete = true;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool open = (happened >> i & 1) == 0;
    if (open && !steps[i].optional) complete = false;
  }
  if (complete) return true;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if ((happened >> i & 1) != 0) continue;
    // A step may come next only if each step that returned before its call is done or optional.
    bool next = true;
    for (std::size_t j = 0; j < steps.size(); ++j) {
      const bool open = (happened >> j & 1) == 0;
      if (open && j != i && !steps[j].optional && steps[j].end < steps[i].invoked) next = false;
    }
    // A step without an answer must come before steps called after its end.
    for (std::size_t j = 0; j < steps.size(); ++j) {
      const bool done = (happened >> j & 1) != 0;
      if (done && steps[j].invoked > steps[i].end) next = false;
    }
    State after = state;
    if (!next || !apply(steps[i], after)) continue;
    if (some_order_fits(steps, happened | 1U << i, after)) return true;
  }
  return false;
}

Operation arbitrary(Random& random, bool versions) {
  static constexpr Function kFunctions[] = {
      Function::kGet,  Function::kGet,    Function::kPut,        Function::kPutIfAbsent,
      Function::kIncr, Function::kRemove, Function::kCounterCas, Function::kPutIfVersion};
  Operation op{.call = {.f = kFunctions[random.below(std::size(kFunctions))], .key = "k"}};
  op.call.text = fmt::format("v{}", random.below(3));
  op.call.number = 1;
  op.call.expected = static_cast<std::int64_t>(random.below(2));
  op.call.if_version = 1 + random.below(6);
  op.invoked = static_cast<Nanos>(random.below(60));
  op.returned = op.invoked + 1 + static_cast<Nanos>(random.below(40));
  const std::uint64_t outcome = random.below(10);
  if (outcome == 0 && is_write(op.call.f)) {
    op.answer.outcome = Outcome::kInfo;
    if (random.below(2) == 0) op.until = op.returned;
    return op;
  }
  op.answer.outcome = Outcome::kOk;
  if (outcome < 3 && is_write(op.call.f)) {
    static constexpr Code kErrors[] = {Code::kNotFound, Code::kConflict, Code::kWrongType};
    op.answer = {.outcome = Outcome::kFail, .error = kErrors[random.below(3)]};
  }
  if (random.below(4) != 0) {
    op.answer.content = random.below(3) == 0
                            ? Content::of(static_cast<std::int64_t>(1 + random.below(3)))
                            : Content::of(fmt::format("v{}", random.below(3)));
  }
  const bool absent = op.answer.content.kind == Content::Kind::kAbsent;
  const bool tells_version = op.answer.outcome == Outcome::kOk && (is_write(op.call.f) || !absent);
  if (versions && tells_version && random.below(2) == 0) op.answer.version = 1 + random.below(6);
  return op;
}

TEST(RandomHistories, AreJudgedAsByTryingEveryOrder) {
  Random random(11);
  std::size_t linearizable = 0;
  constexpr std::size_t kHistories = 60'000;
  for (std::size_t i = 0; i < kHistories; ++i) {
    History history;
    for (std::size_t n = 2 + random.below(5); n > 0; --n)
      history.push_back(arbitrary(random, i % 2 == 0));
    std::ranges::stable_sort(history, {}, &Operation::invoked);
    const KeySteps key = steps_of(history);
    const bool fits = some_order_fits(key.steps, 0, State{});
    const SearchResult result = search(key.steps, State{}, {});
    linearizable += fits ? 1 : 0;
    std::string told;
    for (const Operation& op : history)
      told += fmt::format("{} .. {} {}\n", op.invoked, op.end(), describe(op));
    ASSERT_EQ(result.verdict == SearchResult::Verdict::kLinearizable, fits) << i << "\n" << told;
    if (!fits) {
      // The printed window must be impossible by itself, and the checker must confirm it.
      ASSERT_TRUE(check(history)) << told;
    }
  }
  // Both kinds occurred.
  EXPECT_GT(linearizable, kHistories / 50);
  EXPECT_LT(linearizable, kHistories / 2);
}

TEST(RandomHistories, AHundredThousandOperationsAreJudgedInSeconds) {
  Mix mix;
  mix.operations = 100'000;
  mix.keys = 300;
  mix.info_in = 200;
  const History history = Generator(3, mix).history();
  const auto begin = std::chrono::steady_clock::now();
  const auto violation = check(history);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_FALSE(violation) << violation->text;
  fmt::print("{} operations on {} keys: {} ms\n", mix.operations, mix.keys,
             std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
}

}  // namespace
}  // namespace rkv::history
