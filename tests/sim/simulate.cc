// simulate: runs the whole store, seed after seed, and stops at the first run that breaks a
// promise.
//
//   simulate --seeds 10000 --first-seed 1 [--verbose] [--canary NAME]
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "common/log.h"
#include "common/parse.h"
#include "tests/sim/run_seed.h"

namespace rkv::sim {
namespace {

struct Arguments {
  std::uint64_t seeds = 1000;
  std::uint64_t first_seed = 1;
  bool verbose = false;
  Canary canary = Canary::kNone;
  std::string canary_name;
};

constexpr const char* kUsage =
    "usage: simulate [--seeds N] [--first-seed S] [--verbose] [--canary NAME]\n"
    "canaries: forged stale disk reads hiding mixed dropping full expiry hasty deaf sweep seal\n"
    "          forgetful again lane\n";

std::optional<Canary> canary_of(std::string_view name) {
  if (name == "forged") return Canary::kForgedRecords;
  if (name == "stale") return Canary::kStaleReads;
  if (name == "disk") return Canary::kLyingDisk;
  if (name == "reads") return Canary::kStaleDisk;
  if (name == "hiding") return Canary::kHidingDisk;
  if (name == "mixed") return Canary::kMixedValues;
  if (name == "dropping") return Canary::kDroppingDisk;
  if (name == "full") return Canary::kFullForGood;
  if (name == "expiry") return Canary::kNoExpiry;
  if (name == "hasty") return Canary::kHastyClock;
  if (name == "deaf") return Canary::kDeafClock;
  if (name == "sweep") return Canary::kNoSweep;
  if (name == "seal") return Canary::kBlindSeal;
  if (name == "forgetful") return Canary::kForgetful;
  if (name == "again") return Canary::kAppliesAgain;
  if (name == "lane") return Canary::kWrongLane;
  return std::nullopt;
}

std::optional<std::uint64_t> number_of(const char* text) {
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(text, &end, 10);
  return *text == '\0' || *end != '\0' ? std::nullopt : std::optional(number);
}

std::optional<Arguments> parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--verbose") {
      arguments.verbose = true;
      continue;
    }
    if (++i == count) return std::nullopt;
    const auto number = number_of(words[i]);
    if (word == "--seeds" && number) {
      arguments.seeds = *number;
    } else if (word == "--first-seed" && number) {
      arguments.first_seed = *number;
    } else if (word == "--canary" && canary_of(words[i])) {
      arguments.canary = *canary_of(words[i]);
      arguments.canary_name = words[i];
    } else {
      return std::nullopt;
    }
  }
  return arguments;
}

struct Sum {
  std::uint64_t operations = 0;
  std::uint64_t failures = 0;
  std::uint64_t events = 0;
  std::uint64_t restarts = 0;
  std::uint64_t stashed = 0;
  std::uint64_t promoted = 0;
  std::uint64_t evicted = 0;
  std::uint64_t expired = 0;
  std::uint64_t cuts = 0;
  std::uint64_t tears = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t two_sided = 0;
  std::uint64_t atomics = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t busy = 0;
  std::uint64_t asked = 0;
  std::uint64_t recovered = 0;
  std::uint64_t full_queues = 0;
  std::uint64_t receives_waited = 0;

  void add(const Outcome& one) {
    operations += one.operations;
    failures += one.failures;
    events += one.events;
    restarts += one.restarts;
    stashed += one.stashed;
    promoted += one.promoted;
    evicted += one.evicted;
    expired += one.expired;
    cuts += one.network.cuts;
    tears += one.clients.tears_detected;
    cache_hits += one.clients.cache_hits;
    two_sided += one.clients.two_sided_gets;
    atomics += one.clients.atomics;
    reconnects += one.clients.reconnects;
    busy += one.clients.busy_answers;
    asked += one.clients.outcomes_asked;
    recovered += one.clients.outcomes_recovered;
    full_queues += one.network.full_send_queues;
    receives_waited += one.network.waits_for_receives;
  }
};

int run(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  Sum sum;
  for (std::uint64_t i = 0; i < arguments.seeds; ++i) {
    const std::uint64_t seed = arguments.first_seed + i;
    const Outcome outcome = run_seed(seed, arguments.canary);
    sum.add(outcome);
    if (!outcome.violation) continue;
    fmt::print("seed {}: {}\nrepeat: ./run simulate --seeds 1 --first-seed {}{}\n", seed,
               *outcome.violation, seed,
               arguments.canary_name.empty() ? "" : " --canary " + arguments.canary_name);
    std::fflush(stdout);
    std::_Exit(1);  // fibers that never ended cannot be destroyed
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{} seeds without a violation, {:.0f} a second\n"
      "{} operations ({} failed or unknown), {} events, {} restarts, {} connections cut,\n"
      "{} tears detected, {} cache hits, {} two-sided gets, {} reconnects, {} busy answers,\n"
      "{} keys stashed, {} posts cut short, {} messages waited for a buffer,\n"
      "{} records loaded for an operation, {} evicted, {} expired, {} atomics of clients,\n"
      "{} lost answers asked for, {} of them of applied writes\n",
      arguments.seeds, static_cast<double>(arguments.seeds) / took.count(), sum.operations,
      sum.failures, sum.events, sum.restarts, sum.cuts, sum.tears, sum.cache_hits, sum.two_sided,
      sum.reconnects, sum.busy, sum.stashed, sum.full_queues, sum.receives_waited, sum.promoted,
      sum.evicted, sum.expired, sum.atomics, sum.asked, sum.recovered);
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
  rkv::set_log_level(arguments->verbose ? rkv::LogLevel::kDebug : rkv::LogLevel::kOff);
  return rkv::sim::run(*arguments);
}
