// simulate_group: runs a replicated group, seed after seed, and stops at the first run that breaks
// a promise.
//
//   simulate_group --seeds 10000 --first-seed 1
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "common/log.h"
#include "common/parse.h"
#include "tests/sim/group/group_plan.h"

namespace rkv::sim {
namespace {

struct Arguments {
  std::uint64_t seeds = 1000;
  std::uint64_t first_seed = 1;
};

constexpr const char* kUsage = "usage: simulate_group [--seeds N] [--first-seed S]\n";
constexpr std::uint64_t kMost = ~std::uint64_t{0} / 2;

std::optional<Arguments> parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; i += 2) {
    if (i + 1 == count) return std::nullopt;
    const std::string_view word = words[i];
    const auto number = parse_number<std::uint64_t>(words[i + 1], 0, kMost);
    if (!number || (word != "--seeds" && word != "--first-seed")) return std::nullopt;
    (word == "--seeds" ? arguments.seeds : arguments.first_seed) = *number;
  }
  return arguments;
}

int run(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  GroupVerdict sum;
  for (std::uint64_t i = 0; i < arguments.seeds; ++i) {
    const std::uint64_t seed = arguments.first_seed + i;
    const GroupVerdict one = run_group({.seed = seed});
    if (one.wrong != nullptr || one.stuck != nullptr) {
      fmt::print(
          "seed {} of a group: {}\nrepeat: ./run simulate --group --seeds 1 --first-seed {}\n",
          seed, one.wrong != nullptr ? one.wrong : one.stuck, seed);
      return 1;
    }
    sum.add(one);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{} seeds of a group without a violation, {:.0f} a second\n"
      "{} writes answered, {} GETs believed, {} terms, {} joins, {} copies of an engine\n",
      arguments.seeds, static_cast<double>(arguments.seeds) / took.count(), sum.writes, sum.gets,
      sum.terms, sum.joins, sum.copies);
  return 0;
}

}  // namespace
}  // namespace rkv::sim

int main(int count, char** words) {
  const auto arguments = rkv::sim::parse(count, words);
  if (!arguments) {
    std::fputs(rkv::sim::kUsage, stderr);
    return 2;
  }
  rkv::set_log_level(rkv::LogLevel::kOff);
  return rkv::sim::run(*arguments);
}
