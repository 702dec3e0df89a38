// A recorded run: client threads at work on one real server - hot keys and cold ones, all kinds of
// operations - while the index grows under them, the server is stopped for moments so that writes
// go unanswered, clients are thrown away and made anew, and the server stops and starts once.
//
//   const RunReport report = run({.seed = 7});
//   EXPECT_FALSE(check(report.history, report.limits));
//
// Thread safety: one run at a time.
#pragma once

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
  std::size_t operations = 20'000;  // of each thread
  std::size_t hot_keys = 6;         // half of all operations go to them
  std::size_t cold_keys = 400;
  std::size_t fillers = 20'000;      // keys that only make the index grow
  std::size_t stops = 8;             // times that the server stands still
  std::uint64_t replace_in = 2'000;  // one in so many operations is done by a new client
  bool restart = true;               // stopped in good order and started in the middle
};

struct RunReport {
  History history = {};
  CheckLimits limits = {};  // with what the run did to the server's punctuality
  std::size_t unanswered = 0;
  std::size_t clients_replaced = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t index_splits = 0;
  std::uint64_t one_sided_gets = 0;
  std::uint64_t tears_detected = 0;
  std::uint64_t atomics = 0;  // on one-sided counters
  std::uint64_t cells = 0;    // that they were in, since the last start
  // Errors that nothing of the run explains, each once.
  std::vector<std::string> unexpected = {};
};

RunReport run(const RunOptions& options);

}  // namespace rkv::history
