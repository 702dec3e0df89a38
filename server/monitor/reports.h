// Reports: a server's facts for operators and programs, as `kvclient stats` shows them and as the
// --metrics endpoint serves them. STATISTICS.md describes both.
//
// Thread safety: pure functions; workers may count meanwhile. All of them allocate and ask the
// system for CPU time, memory and open files.
#pragma once

#include <memory>
#include <string>

#include "server/monitor/facts.h"

namespace rkv::server {

// The server's state as seen from outside.
struct ServerState {
  enum Phase : std::uint8_t { kStarting, kReady, kStopping };
  Phase phase = kStarting;
  std::string doing;      // kStarting: the step, such as "opening the database"
  std::string stuck;      // not empty: what makes no progress
  double wal_lag_s = 0;   // age of the oldest write that is not in the write-ahead log
  double sync_lag_s = 0;  // age of the oldest write that is not synced
  std::uint64_t unix_ms_at_start = 0;
  std::shared_ptr<const GroupStatus> group{};  // nullptr: in no group, or not known yet
};
// "starting", "ready", "stopping".
const char* to_string(ServerState::Phase phase);

// Index slots that refer to a record.
std::uint64_t index_slots_used(const StoreStats& store);
// Requests that a worker has received and not answered yet.
std::uint64_t requests_waiting(const WorkerFacts& worker);
// Requests that the worker's clients may have unanswered.
std::uint64_t credits_granted(const WorkerFacts& worker);

// Whether /readyz reports success: clients are served, or this is a backup in sync. `facts`:
// nullptr until the server has begun to serve.
bool is_ready(const ServerState& state, const ServerFacts* facts);
// Whether clients can reach the server over at least one network.
bool has_way_in(const ServerFacts& facts);
// One line for each network that does not serve.
std::string closed_endpoints(const ServerFacts& facts);

// The answer to a stats request: a JSON object.
std::string stats_json(const ServerFacts& facts);
// `facts`: nullptr until the server has begun to serve.
std::string status_json(const ServerState& state, const ServerFacts* facts);
// The metrics in Prometheus' text format.
std::string metrics_text(const ServerState& state, const ServerFacts* facts);

}  // namespace rkv::server
