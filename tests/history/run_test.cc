// Recorded runs against a real server, judged from their exported files.
//
// RKV_HISTORY_OPERATIONS: number of operations in all. RKV_HISTORY_SEED: which run (default: a new
// one each time). RKV_HISTORY_DIR: where the history of a failed run is kept.
#include "tests/history/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>

#include "tests/history/falsify.h"
#include "tests/history/judge.h"
#include "tests/system/device_atomics.h"

namespace rkv::history {
namespace {

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Changes one answer in the history of a real run.
void expect_that_a_stale_read_is_noticed(const History& history, const CheckLimits& limits) {
  std::map<std::string, History> keys;
  for (const Operation& op : history)
    keys[op.call.key].push_back(op);
  std::size_t made = 0;
  for (auto& [key, key_history] : keys) {
    for (std::size_t at = key_history.size(); at > 0; --at) {
      if (!make_stale(key_history, at - 1)) continue;
      ++made;
      const auto violation = check(key_history, limits);
      ASSERT_TRUE(violation) << describe(key_history[at - 1]) << " was accepted";
      EXPECT_FALSE(violation->given_up);
      break;
    }
  }
  EXPECT_GT(made, 0U);
}

// Removes an acknowledged addition.
void expect_that_a_lost_addition_is_noticed(const History& history, const CheckLimits& limits) {
  std::map<std::string, History> keys;
  for (const Operation& op : history)
    keys[op.call.key].push_back(op);
  int made = 0;
  for (auto& [key, key_history] : keys) {
    if (!lose_an_addition(key_history)) continue;
    ++made;
    const auto violation = check(key_history, limits);
    ASSERT_TRUE(violation) << "an addition to " << key << " is missing, and nobody noticed";
    EXPECT_FALSE(violation->given_up);
  }
  // In a short run a counter rarely has only one client at work.
  EXPECT_GT(made, history.size() < 30'000 ? -1 : 0);
}

void expect_linearizable(const RunReport& report, std::uint64_t seed) {
  const auto begin = std::chrono::steady_clock::now();
  History history;
  const std::string violation =
      judge(report.history, report.limits,
            fmt::format("{}-{}", std::getenv("RKV_TEST_TRANSPORT"), seed), &history);
  fmt::print("judged in {:.1f} s\n", seconds_since(begin));
  ASSERT_EQ(violation, "");
  expect_that_a_stale_read_is_noticed(history, report.limits);
  expect_that_a_lost_addition_is_noticed(history, report.limits);
}

TEST(RecordedRun, IsLinearizable) {
  RunOptions options{
      .seed = number_from(
          "RKV_HISTORY_SEED",
          static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) %
              1'000'000),
      .async_threads = 2};
  const std::uint64_t operations = number_from("RKV_HISTORY_OPERATIONS", 0);
  ASSERT_GT(operations, 0U) << "RKV_HISTORY_OPERATIONS says how many: run this by ctest";
  options.operations = operations / options.threads;
  options.replace_in = std::max<std::uint64_t>(10, options.operations / 10);
  const auto begin = std::chrono::steady_clock::now();
  const RunReport report = run(options);
  fmt::print(
      "seed {}: {} operations in {:.1f} s, {} unanswered, {} reconnects, {} new clients, {} "
      "splits, "
      "{} one-sided GETs, {} tears, {} atomics on {} cells\n",
      options.seed, report.history.size(), seconds_since(begin), report.unanswered,
      report.reconnects, report.clients_replaced, report.index_splits, report.one_sided_gets,
      report.tears_detected, report.atomics, report.cells);
  expect_linearizable(report, options.seed);
  fmt::print("of one asynchronous client: {} operations, {} withdrawn, {} reconnects\n",
             report.async_operations, report.cancelled, report.async_reconnects);
  for (const std::string& error : report.unexpected)
    ADD_FAILURE() << "without a cause: " << error;
  // An event that did not happen was not tested.
  EXPECT_GT(report.unanswered, 0U);
  EXPECT_GT(report.reconnects, 0U);
  EXPECT_GT(report.clients_replaced, 0U);
  EXPECT_GT(report.async_operations, operations / 8);
  EXPECT_GT(report.async_reconnects, 0U);
  if (operations >= 100'000) {  // one of 500 is, unless it has ended
    EXPECT_GT(report.cancelled, 0U);
  }
  EXPECT_GT(report.index_splits, 0U);
  EXPECT_GT(report.one_sided_gets, operations / 10);
  if (testing_support::device_has_atomics()) {
    EXPECT_GT(report.atomics, operations / 30);
    EXPECT_GT(report.cells, 0U);
  } else {
    EXPECT_EQ(report.atomics, 0U);
    EXPECT_EQ(report.cells, 0U);
  }
}

}  // namespace
}  // namespace rkv::history
