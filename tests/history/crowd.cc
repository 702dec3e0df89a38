#include "tests/history/crowd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "tests/system/world.h"

namespace rkv::history {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{20};  // between looks at a count

}  // namespace

RunOptions crowd_options(std::uint64_t seed, const std::string& prefix) {
  return {.seed = seed,
          .threads = Crowd::kWorkers,
          .operations = std::numeric_limits<std::size_t>::max(),
          .cold_keys = 100,
          .replace_in = 500,
          .prefix = prefix,
          .timeout = Crowd::kTimeout};
}

Crowd::Crowd(const Clock& clock, const std::string& address, const std::string& prefix,
             std::uint64_t seed, Transport transport)
    : options_(crowd_options(seed, prefix)),
      shared_{.options = options_, .clock = clock, .address = address, .transport = transport},
      stalls_(clock),
      ledger_(kWriters * DurableWriter::kKeysEach) {
  Client client = connect(shared_, seed);
  boot_ = static_cast<std::uint32_t>(testing_support::server_stat(client, "boot"));
  for (std::size_t i = 0; i <= kWorkers; ++i)
    workers_.push_back(std::make_unique<Worker>(shared_, static_cast<int>(i)));
  for (std::size_t i = 0; i < kWriters; ++i)
    writers_.push_back(std::make_unique<DurableWriter>(shared_, i, ledger_));
  for (std::size_t i = 0; i < kWorkers; ++i)
    threads_.emplace_back([worker = workers_[i].get()] { worker->run(); });
  for (const auto& writer : writers_)
    threads_.emplace_back([writer = writer.get()] { writer->run(); });
}

Crowd::~Crowd() {
  end_threads();
}

void Crowd::end_threads() {
  shared_.over = true;
  for (std::thread& thread : threads_)
    thread.join();
  threads_.clear();
}

double Crowd::rate(milliseconds time) {
  const std::size_t before = shared_.answered;
  const Nanos began = shared_.clock.now();
  std::this_thread::sleep_for(time);
  return static_cast<double>(shared_.answered - before) * 1e9 /
         static_cast<double>(shared_.clock.now() - began);
}

std::optional<Nanos> Crowd::time_until(double rate, milliseconds limit) {
  constexpr Nanos kWindow = 500 * kNanosPerMs;
  std::deque<std::pair<Nanos, std::size_t>> looks;
  const Nanos began = shared_.clock.now();
  for (;;) {
    const Nanos now = shared_.clock.now();
    looks.emplace_back(now, shared_.answered);
    while (looks.size() > 1 && looks[1].first <= now - kWindow)
      looks.pop_front();
    const auto [then, count] = looks.front();
    if (now - then >= kWindow) {
      const double seconds = static_cast<double>(now - then) / 1e9;
      if (static_cast<double>(looks.back().second - count) / seconds >= rate) return now - began;
    }
    if (now - began > limit.count() * kNanosPerMs) return std::nullopt;
    std::this_thread::sleep_for(kLook);
  }
}

void Crowd::pause() {
  shared_.held = true;
  while (shared_.resting < threads_.size())
    std::this_thread::sleep_for(kLook);
}

void Crowd::resume() {
  shared_.held = false;
}

void Crowd::check_ledger(Client& client) {
  const auto shown = DurableWriter::look(shared_, client, kWriters);
  for (const std::string& sentence : ledger_.check(shown, boot_))
    wrong_.push_back(sentence);
  ledger_.go_on_from(shown);
}

void Crowd::see_restart() {
  workers_.back()->see_restart();
  Client client = connect(shared_, options_.seed);
  check_ledger(client);
  boot_ = static_cast<std::uint32_t>(testing_support::server_stat(client, "boot"));
}

CrowdReport Crowd::stop(bool is_server_there) {
  end_threads();
  if (is_server_there) {
    workers_.back()->look_at_everything();
    Client client = connect(shared_, options_.seed);
    check_ledger(client);
  }
  CrowdReport report;
  report.longest_stall = stalls_.stop();
  report.wrong = std::exchange(wrong_, {});
  std::vector<const History*> parts;
  for (const auto& worker : workers_) {
    parts.push_back(&worker->recorder().history());
    report.lateness.add(worker->lateness());
    report.unanswered += worker->recorder().unanswered();
    report.reconnects += worker->stats().reconnects;
    for (const auto& [text, count] : worker->errors())
      report.wrong.push_back(fmt::format("{} times without a cause: {}", count, text));
  }
  for (const auto& writer : writers_) {
    report.lateness.add(writer->lateness());
    report.synced += writer->synced();
  }
  for (const CrowdReport& others : others_) {
    parts.push_back(&others.history);
    report.lateness.add(others.lateness);
    report.longest_stall = std::max(report.longest_stall, others.longest_stall);
    report.unanswered += others.unanswered;
    report.reconnects += others.reconnects;
    report.wrong.insert(report.wrong.end(), others.wrong.begin(), others.wrong.end());
  }
  report.history = merge(parts);
  // The bound on late expiry assumes that the machines run the server's thread.
  report.limits.search.expiry_late += report.longest_stall + stood_;
  return report;
}

}  // namespace rkv::history
