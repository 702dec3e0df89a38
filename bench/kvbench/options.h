// kvbench's command line: YCSB's flags with one dash, kvclient's flags for the connection, and its
// own flags.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/kvbench/measurements.h"
#include "bench/kvbench/properties.h"
#include "bench/kvbench/workload.h"
#include "rkv/durability.h"
#include "rkv/options.h"
#include "rkv/shard_map.h"

namespace rkv::kvbench {

enum class Form : std::uint8_t { kText, kJson, kCsv, kYcsbJson, kYcsbJsonArray };

// All settings of a run, checked.
struct Options {
  Properties properties;  // files in order, then -p
  ClientOptions client;
  std::optional<ShardMap> servers;  // several servers as one store; unset: client.server
  Phase phase = Phase::kTransactions;
  WorkloadSettings workload;
  std::uint32_t threads = 1;
  std::vector<unsigned> cpus;   // each thread is pinned to one; empty = anywhere
  std::uint32_t in_flight = 1;  // concurrent operations per thread
  std::uint64_t target = 0;     // operations per second of all threads; 0 = unlimited
  bool spin_sleep = false;
  bool status = false;
  std::uint32_t status_interval_s = 10;
  std::string label;
  Interval interval = Interval::kOperation;
  std::vector<double> percentiles;
  bool verbose_histogram = false;
  bool hdr_files = false;
  std::string hdr_path;  // prefix from hdrhistogram.output.path
  Form form = Form::kText;
  std::string export_file;  // "" = standard output
  bool plain_updates = false;
  Durability durability = Durability::kDefault;
  std::uint64_t seed = 0;
  std::vector<std::string> notes;  // warnings for standard error
};

// The request of the arguments: a run, or a text to print before exit with kDone or kUsage.
struct Parsed {
  enum class Kind : std::uint8_t { kRun, kText, kUsageError };
  Kind kind = Kind::kRun;
  Options options;
  std::string text;
};

using Environment = std::function<const char*(const char* name)>;

// `arguments` excludes the program's name. Reads the property files.
Parsed parse_arguments(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace rkv::kvbench
