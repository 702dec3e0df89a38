// Results in the forms that people and programs read.
//
// Thread safety: none needed, pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/kvbench/environment.h"
#include "bench/kvbench/options.h"
#include "bench/kvbench/run.h"

namespace rkv::kvbench {

// One line of YCSB's text, and of its JSON.
struct Metric {
  std::string section;  // "READ"
  std::string name;     // "AverageLatency(us)"
  std::string value;    // a number
};
// In YCSB's order and with its names; latencies are whole microseconds there, so the same in
// nanoseconds follow. Sections CLIENT and SERVER are not YCSB's.
std::vector<Metric> metrics(const Options& options, const Results& results);

// `command`: the command line, for JSON.
std::string report(const Options& options, const Results& results, const RunsOn& on,
                   const std::vector<std::string>& command);

}  // namespace rkv::kvbench
