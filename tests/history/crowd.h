// Clients at work on one server from another machine, until they are stopped: recorded ones, with
// operations of all kinds, and writers whose durable writes are kept in a ledger.
//
//   Crowd crowd(clock, server.address(), "cut-", seed);
//   const double before = crowd.rate(2s);
//   ...  // the disturbance
//   const auto recovered = crowd.time_until(before / 2, 5s);
//   const CrowdReport report = crowd.stop();
//
// Thread safety: one thread uses it; it has others of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/history/durable_writer.h"
#include "tests/history/stall_watch.h"
#include "tests/history/worker.h"

namespace rkv::history {

struct CrowdReport {
  History history = {};
  CheckLimits limits = {};
  Lateness lateness = {};
  Nanos longest_stall = 0;  // for which a thread of this machine waited for a processor
  std::size_t unanswered = 0;
  std::size_t synced = 0;  // writes acknowledged as `sync`
  std::uint64_t reconnects = 0;
  // Errors that a bad link does not explain, and what the ledger found, each a sentence.
  std::vector<std::string> wrong = {};
};

class Crowd {
 public:
  static constexpr std::chrono::milliseconds kTimeout{2000};  // of most operations
  static constexpr std::size_t kWorkers = 4;
  static constexpr std::size_t kWriters = 2;
  static constexpr std::size_t kClients = kWorkers + kWriters;

  Crowd(const Clock& clock, const std::string& address, const std::string& prefix,
        std::uint64_t seed, Transport transport = Transport::kVerbs);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Answered operations a second, over this time from now on.
  double rate(std::chrono::milliseconds time);
  // From now on until the rate over half a second is this; nothing if it takes longer than `limit`.
  std::optional<Nanos> time_until(double rate, std::chrono::milliseconds limit);
  std::size_t answered() const { return shared_.answered; }

  // Returns when no client is in a call; they call nothing until resume().
  void pause();
  void resume();
  // While paused: the server was killed and has started again. Records and checks what is left.
  void see_restart();

  // Adds the report of other clients with this seed, prefix and clock (other_clients.h) to that of
  // stop().
  void add(CrowdReport others) { others_.push_back(std::move(others)); }

  // The server has been without a processor for `time`: keys may expire that much later.
  void server_stood(Nanos time) { stood_ += time; }
  // `is_server_there`: reads everything at the end.
  CrowdReport stop(bool is_server_there = true);

 private:
  void check_ledger(Client& client);
  void end_threads();

  RunOptions options_;
  Shared shared_;
  StallWatch stalls_;
  testing_support::CrashLedger ledger_;
  std::vector<std::unique_ptr<Worker>> workers_;  // the last one is used by our thread
  std::vector<std::unique_ptr<DurableWriter>> writers_;
  std::vector<std::thread> threads_;
  std::uint32_t boot_ = 0;  // the server's, while it lives
  Nanos stood_ = 0;
  std::vector<std::string> wrong_;
  std::vector<CrowdReport> others_;
};

// Returns the options of a crowd's workers, with this seed and this prefix of all keys.
RunOptions crowd_options(std::uint64_t seed, const std::string& prefix);

}  // namespace rkv::history
