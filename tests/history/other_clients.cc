#include "tests/history/other_clients.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>

namespace rkv::history {
namespace {

// Each thread of the two machines has its own number, from which values are made.
constexpr int kFirstThread = 100;
// Processes of the history: beyond those of the crowd.
constexpr int kFirstProcess = 1'000'000;

constexpr std::chrono::milliseconds kBetweenLooks{20};

// Takes a line of a report: `name value`.
void take_line(const std::string& line, CrowdReport& report) {
  const std::size_t space = line.find(' ');
  ASSERT_NE(space, std::string::npos) << line;
  const std::string name = line.substr(0, space);
  const std::string rest = line.substr(space + 1);
  const Nanos number = std::strtoll(rest.c_str(), nullptr, 10);
  if (name == "stall") report.longest_stall = number;
  if (name == "unanswered") report.unanswered = static_cast<std::size_t>(number);
  if (name == "reconnects") report.reconnects = static_cast<std::uint64_t>(number);
  if (name == "late") report.lateness.note(number, [&] { return "there: " + rest; });
  if (name == "wrong") report.wrong.push_back("there: " + rest);
}

}  // namespace

OtherClients::OtherClients(const Clock& clock, const std::string& server, const std::string& prefix,
                           std::uint64_t seed)
    : clock_(clock) {
  // The shell keeps an end of each pipe, 3 and 4, so that questions start no program.
  host_.run(
      fmt::format("pipes=$(mktemp -d) && mkfifo $pipes/in $pipes/out && {{ {} {} {} {} {} {} "
                  "<$pipes/in >$pipes/out & }} && clients=$! && exec 3>$pipes/in 4<$pipes/out",
                  RKV_HISTORY_CLIENTS, server, prefix, seed, kFirstThread, kThreads));
  look_at_clock();
  ask("begin");
  looker_ = std::thread([this] {
    while (!over_) {
      std::this_thread::sleep_for(kBetweenLooks);
      look_at_clock();
    }
  });
}

OtherClients::~OtherClients() {
  end_looking();
}

void OtherClients::end_looking() {
  over_ = true;
  if (looker_.joinable()) looker_.join();
}

bool OtherClients::is_here(const Operation& operation) {
  return operation.process < kFirstProcess;
}

std::string OtherClients::ask(const std::string& question) {
  const MutexLock lock(mutex_);
  return host_.run(fmt::format("echo {} >&3 && read -r answer <&4 && echo $answer", question));
}

void OtherClients::look_at_clock() {
  const Nanos before = clock_.now();
  const Nanos there = std::strtoll(ask("time").c_str(), nullptr, 10);
  looks_.push_back({.before = before, .there = there, .after = clock_.now()});
}

std::size_t OtherClients::answered() {
  return std::strtoull(ask("answered").c_str(), nullptr, 10);
}

CrowdReport OtherClients::stop() {
  ask("stop");
  end_looking();
  look_at_clock();
  std::istringstream text(host_.run("echo report >&3 && exec 3>&- && cat <&4 && wait $clients"));
  CrowdReport report;
  std::string line;
  while (std::getline(text, line) && line != "history")
    take_line(line, report);
  std::string complaint;
  auto history = import_history(text, &complaint);
  EXPECT_TRUE(history) << complaint;
  if (!history) return report;
  EXPECT_FALSE(history->empty());
  report.history = std::move(*history);
  translate(report.history);
  return report;
}

Nanos OtherClients::uncertainty() const {
  std::vector<Nanos> lengths;
  for (std::size_t i = 1; i < looks_.size(); ++i)
    lengths.push_back(looks_[i].after - looks_[i - 1].before);
  std::ranges::sort(lengths);
  return lengths[lengths.size() / 2];
}

// Widened operations of one process may overlap, so each gets a process of its own.
void OtherClients::translate(History& history) const {
  ASSERT_TRUE(std::ranges::is_sorted(looks_, {}, &Look::there));
  const auto not_before = [&](Nanos there) {
    const auto later = std::ranges::upper_bound(looks_, there, {}, &Look::there);
    return later == looks_.begin() ? -kForever : (later - 1)->before;
  };
  const auto not_after = [&](Nanos there) {
    const auto later = std::ranges::lower_bound(looks_, there, {}, &Look::there);
    return later == looks_.end() ? kForever : later->after;
  };
  int process = kFirstProcess;
  for (Operation& operation : history) {
    operation.process = process++;
    operation.invoked = not_before(operation.invoked);
    ASSERT_GT(operation.invoked, 0) << "called before the clocks were compared";
    operation.returned = not_after(operation.returned);
    operation.until = not_after(operation.until);
  }
}

}  // namespace rkv::history
