#include "tests/history/crowd_judge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/random.h"
#include "tests/history/judge.h"

namespace rkv::history {
namespace {

// client/README.md: for so long a client waits for an adapter to return what was posted.
constexpr Nanos kMargin = 2'200 * kNanosPerMs;

double seconds(Nanos time) {
  return static_cast<double>(time) / 1e9;
}

}  // namespace

std::uint64_t crowd_seed() {
  const char* const given = std::getenv("RKV_HISTORY_SEED");
  const std::uint64_t seed =
      given == nullptr ? random_from_kernel() % 1'000'000 : std::strtoull(given, nullptr, 10);
  fmt::print("repeat with RKV_HISTORY_SEED={}\n", seed);
  return seed;
}

CrowdReport judge_crowd(Crowd& crowd, const std::string& name, bool is_server_there) {
  const CrowdReport report = crowd.stop(is_server_there);
  fmt::print(
      "{} operations, {} unanswered, {} synced, {} reconnects; the latest {:.2f} s after its "
      "deadline: {}; longest stall {:.2f} s\n",
      report.history.size(), report.unanswered, report.synced, report.reconnects,
      seconds(report.lateness.worst()), report.lateness.what(), seconds(report.longest_stall));
  EXPECT_EQ(judge(report.history, report.limits, name), "");
  for (const std::string& sentence : report.wrong)
    ADD_FAILURE() << sentence;
  EXPECT_LE(report.lateness.worst(), kMargin + report.longest_stall) << report.lateness.what();
  EXPECT_GT(report.synced, 0U);
  return report;
}

}  // namespace rkv::history
