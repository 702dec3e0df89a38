// A recorded run: client threads at work on one real server, with hot and cold keys and all kinds
// of operations. Meanwhile the index grows, and the server is suspended for moments so that writes
// go unanswered. Clients are destroyed and created again, and the server stops and starts once.
//
//   const RunReport report = run({.seed = 7});
//   EXPECT_FALSE(check(report.history, report.limits));
//
// Thread safety: one run at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rkv/client.h"
#include "tests/history/checker.h"
#include "tests/history/history.h"

namespace rkv::history {

struct RunOptions {
  std::uint64_t seed = 1;
  std::size_t threads = 4;
  std::size_t operations = 20'000;  // per thread
  // Besides: threads that share one asynchronous client, each with half as many operations.
  std::size_t async_threads = 0;
  std::size_t hot_keys = 6;  // half of all operations use them
  std::size_t cold_keys = 400;
  std::size_t fillers = 20'000;      // keys that only make the index grow
  std::size_t stops = 8;             // times that the server is suspended
  std::uint64_t replace_in = 2'000;  // one in this many operations uses a new client
  bool restart = true;               // an orderly stop and a start halfway
  std::string prefix = {};           // of all keys but the fillers
  // The deadline of most operations; one in ten has 50 ms.
  std::chrono::milliseconds timeout{60'000};
};

struct RunReport {
  History history = {};
  CheckLimits limits = {};  // adapted to the time for which the server could not run
  std::size_t unanswered = 0;
  std::size_t clients_replaced = 0;
  std::uint64_t reconnects = 0;
  std::size_t async_operations = 0;
  std::size_t cancelled = 0;  // of these
  std::uint64_t async_reconnects = 0;
  std::uint64_t index_splits = 0;
  std::uint64_t one_sided_gets = 0;
  std::uint64_t tears_detected = 0;
  std::uint64_t atomics = 0;  // on one-sided counters
  std::uint64_t cells = 0;    // cells that counters have used since the last start
  // Errors that the run's events do not explain, each once.
  std::vector<std::string> unexpected = {};
};

// A recorder for each thread, and one that reads everything at the end.
constexpr int recorders_of(const RunOptions& options) {
  return static_cast<int>(options.threads + options.async_threads) + 1;
}

RunReport run(const RunOptions& options);

}  // namespace rkv::history
