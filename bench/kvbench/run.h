// A run: connects, starts the threads, watches them, and gathers what they measured.
//
//   auto results = run(options);
//   if (!results) return complain(results.error().sentence);
//
// Blocks until the run is over. One at a time in a process: it takes SIGINT and SIGTERM from when
// it has connected.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "bench/kvbench/measurements.h"
#include "bench/kvbench/options.h"
#include "bench/kvbench/store.h"
#include "common/process_time.h"
#include "rkv/client.h"

namespace rkv::kvbench {

enum ExitCode : int {
  kDone = 0,
  kSomeFailed = 1,
  kUsage = 2,
  kNoServer = 3,
  kPartial = 4,  // or nothing at all, for a reason other than the connection
};

struct Failure {
  ExitCode exit_code = kPartial;
  std::string sentence;
};

struct Results {
  bool complete = false;  // everything asked for was tried
  std::string why;        // else: why not
  std::uint64_t operations = 0;
  std::uint64_t missing = 0;  // not tried; 0 where a run is bounded by time alone
  std::uint64_t failed = 0;   // of the operations
  double seconds = 0;
  std::uint32_t threads = 0;
  std::vector<Row> rows;
  ClientStats client;  // all threads together
  StoreCounters counters;
  std::string log_problem;   // a histogram log could not be written; a sentence
  std::string transport;     // Client::describe()
  std::string server_stats;  // at the end, a JSON object; empty: no answer
  // During the run; the server's is 0 where it could not be asked.
  ProcessTime server_time;
  ProcessTime client_time;
};

std::expected<Results, Failure> run(const Options& options);

}  // namespace rkv::kvbench
