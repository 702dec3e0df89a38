// What a person can set: flags, then environment, then a file, then defaults.
//
// Every setting has one name: `--data-dir`, KVSERVER_DATA_DIR, `data-dir` in the file. Values are
// written the same way in all three.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/log.h"
#include "rdma/choose.h"
#include "rkv/durability.h"
#include "server/logging.h"

namespace rkv::server {

// Documented in README.md and --help.
enum ExitCode : std::uint8_t {
  kExitClean = 0,
  kExitUsage = 2,        // the command line, the environment or the configuration file
  kExitEnvironment = 3,  // no device, port taken, locked-memory limit
  kExitData = 4,         // the data directory: not writable, damaged; somebody has to do something
  kExitOther = 5,
  kExitDataLater = 6,  // the data directory: in use, full, failing; another start may succeed
};

struct Options {
  std::string listen = "0.0.0.0:7471";                  // HOST:PORT; port 0 = any
  std::string data_dir;                                 // empty: memory only
  bool require_data = false;                            // data_dir holds data already
  std::string backup_dir;                               // empty: no backups
  Durability durability = Durability::kMemory;          // of writes that name none
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  // everything that clients READ
  std::vector<unsigned> cpus;                           // a worker stays on one; empty = anywhere
  std::uint32_t threads = 1;                            // workers; default: cores - 1, at least 1
  rdma::PollMode poll = rdma::PollMode::kAdaptive;
  rdma::TransportKind transport = rdma::TransportKind::kAuto;
  std::string shm_group;     // who may connect over shm beside our own user; empty: root alone
  std::string device;        // empty: the one that routes to `listen`
  std::uint8_t ib_port = 0;  // 0: any active port
  int gid_index = -1;        // -1: chosen by the connection manager
  std::uint32_t max_clients = 64;
  std::uint32_t max_offences = 4;          // a second, of one origin; 0 = no limit
  std::uint32_t counter_cells = 65536;     // one-sided counters that may ever be opened; 0 = none
  std::string metrics;                     // HOST:PORT; empty: nobody can look from outside
  std::vector<std::string> metrics_names;  // of this host, by which it may be asked there
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  std::uint32_t sync_interval_ms = 1000;                // longest time a write stays unsynced
  std::uint64_t load_rate_bytes = 0;                    // a second; 0 = no limit
  std::uint64_t queue_bytes = std::uint64_t{64} << 20;  // commit log
  bool check_memory = false;                            // before the end of a stop
  bool accept_damaged_log = false;                      // a flag alone, as the next two
  // Runs that serve nobody (offline.h).
  bool verify = false;
  std::string restore;  // the backup
};

struct ParsedOptions {
  Options options;
  // Set when there is nothing to run: print, then exit.
  bool done = false;
  ExitCode exit_code = kExitClean;
  std::string out;    // for stdout
  std::string error;  // for stderr: one sentence without "kvserver: "
};

// `environment` is getenv, or a test's.
using Environment = std::function<const char*(const char* name)>;
ParsedOptions parse_options(const std::vector<std::string>& arguments,
                            const Environment& environment);

// Of all that can be set in a file or the environment, and "config".
std::vector<std::string> option_names();

// "event"; for the log line at start.
const char* to_string(rdma::PollMode mode);
// As --log-level takes it.
const char* to_string(LogLevel level);

inline constexpr const char* kServerVersion = "0.1.0";

}  // namespace rkv::server
