// Formats results for people and programs.
//
// Thread safety: none needed, pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/kvbench/environment.h"
#include "bench/kvbench/options.h"
#include "bench/kvbench/run.h"

namespace rkv::kvbench {

// One line of YCSB's text output, or one object of its JSON.
struct Metric {
  std::string section;  // "READ"
  std::string name;     // "AverageLatency(us)"
  std::string value;    // a number
};
// Metrics in YCSB's order and with its names. YCSB's latencies are whole microseconds, so rows in
// nanoseconds follow. YCSB does not have the sections CLIENT and SERVER.
std::vector<Metric> metrics(const Options& options, const Results& results);

// `command`: the command line, for JSON.
std::string report(const Options& options, const Results& results, const RunsOn& on,
                   const std::vector<std::string>& command);

}  // namespace rkv::kvbench
