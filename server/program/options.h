// Settings of the server. Flags take precedence over the environment, then the configuration file,
// then defaults.
//
// Each setting has one name: `--data-dir`, KVSERVER_DATA_DIR, `data-dir` in the file. Values have
// the same form in all three.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/log.h"
#include "rdma/choose.h"
#include "rkv/durability.h"
#include "rkv/limits.h"
#include "server/program/failure.h"
#include "server/program/logging.h"

namespace rkv::server {

struct Options {
  std::string listen = "0.0.0.0:" + std::to_string(kDefaultPort);  // HOST:PORT; port 0 = any
  std::string data_dir;                                            // empty: memory only
  bool require_data = false;                            // data_dir must already hold data
  bool evict = false;                                   // memory only: drop records when it is full
  bool scrub = false;                                   // zeros over what records leave in memory
  std::string backup_dir;                               // empty: no backups
  std::vector<std::string> etcd;                        // HOST:PORT each; empty: no group
  std::string group;                                    // its name in etcd
  std::string name;                                     // of this replica in its group
  std::string group_secret;                             // file; empty: none
  bool found_group = false;                             // if etcd has none of its name
  bool alone_without_etcd = false;                      // the only one in sync serves on
  std::string etcd_ca;                                  // file; empty: etcd without TLS
  std::string etcd_cert;                                // likewise, of this client; with its key
  std::string etcd_key;                                 // likewise
  std::string etcd_user;                                // empty: none
  std::string etcd_password_file;                       // with the user
  std::uint32_t min_copies = 1;                         // in sync, for writes; with a group
  bool lanes = true;                                    // the log goes over RDMA or shared memory
  Durability durability = Durability::kMemory;          // of writes that specify none
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  // everything that clients READ
  std::vector<unsigned> cpus;                           // one per worker; empty = anywhere
  std::uint32_t threads = 1;                            // workers; default: cores - 1, at least 1
  rdma::PollMode poll = rdma::PollMode::kAdaptive;
  rdma::TransportKind transport = rdma::TransportKind::kAuto;
  std::string shm_group;     // may connect over shm beside our user and root; empty: none
  std::string device;        // empty: the device that routes to `listen`
  std::uint8_t ib_port = 0;  // 0: any active port
  int gid_index = -1;        // -1: chosen by the connection manager
  std::string users;         // file of those who may connect; empty: anyone may
  // Every host that reaches `listen` may connect. Without it and without users only this host may:
  // the transport is then kShm.
  bool no_auth = false;
  // HOST:PORT each: addresses besides the one that was called, about which a user's proof may be.
  std::vector<std::string> advertise{};
  std::uint32_t max_clients = 64;
  std::uint32_t max_offences = 4;          // per second and origin; 0 = no limit
  std::uint32_t counter_cells = 65536;     // one-sided counters to be opened per start; 0 = none
  std::string metrics;                     // HOST:PORT; empty: no monitoring
  std::vector<std::string> metrics_names;  // names of this host that HTTP requests may use
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  std::uint32_t sync_interval_ms = 1000;                // longest time a write stays unsynced
  std::uint64_t load_rate_bytes = 0;                    // per second; 0 = no limit
  std::uint64_t queue_bytes = std::uint64_t{64} << 20;  // size of the commit log
  bool check_memory = false;                            // checks all memory at the end of a stop
  bool accept_damaged_log = false;                      // flag only, as those below
  // Runs without serving clients (offline.h).
  bool verify = false;
  std::string restore;  // directory of the backup
  bool force_primary = false;
  std::string forget_revoked;  // a user's name, or "*"

  bool is_in_group() const { return !etcd.empty(); }
  bool admits_other_hosts() const { return no_auth || !users.empty(); }
};

struct ParsedOptions {
  Options options;
  // If true, there is nothing to run: print `out` and `error`, then exit.
  bool done = false;
  ExitCode exit_code = kExitClean;
  std::string out;    // for stdout
  std::string error;  // for stderr: one sentence without "kvserver: "
};

// getenv(), or a test's replacement.
using Environment = std::function<const char*(const char* name)>;
ParsedOptions parse_options(const std::vector<std::string>& arguments,
                            const Environment& environment);

// Names of all settings for a file or the environment, and "config".
std::vector<std::string> option_names();

// The value of --poll, such as "event"; for the log line at the start.
const char* to_string(rdma::PollMode mode);
// The value of --log-level.
const char* to_string(LogLevel level);

inline constexpr const char* kServerVersion = "0.1.0";

}  // namespace rkv::server
