// A run: connects, starts the threads, watches them, and collects their measurements.
//
//   auto results = run(options);
//   if (!results) return complain(results.error().sentence);
//
// Blocks until the run is over. Only one run at a time per process: it handles SIGINT and SIGTERM
// once it has connected.
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
  kPartial = 4,  // partial or no results, for a reason other than the connection
};

struct Failure {
  ExitCode exit_code = kPartial;
  std::string sentence;
};

struct Results {
  bool complete = false;  // all requested operations were attempted
  std::string why;        // reason, if not complete
  std::uint64_t operations = 0;
  std::uint64_t missing = 0;  // not attempted; 0 for a run bounded by time only
  std::uint64_t failed = 0;   // how many of `operations` failed
  double seconds = 0;
  std::uint32_t threads = 0;
  std::vector<Row> rows;
  ClientStats client;  // sum over all threads
  StoreCounters counters;
  std::string log_problem;   // sentence: a histogram log could not be written
  std::string transport;     // Client::describe()
  std::string server_stats;  // JSON object from the end of the run; empty: no answer
  // During the run; the server's time is 0 if the server could not be asked.
  ProcessTime server_time;
  ProcessTime client_time;
};

std::expected<Results, Failure> run(const Options& options);

// Prints "kvbench: SENTENCE" on standard error.
void complain(const std::string& sentence);

}  // namespace rkv::kvbench
