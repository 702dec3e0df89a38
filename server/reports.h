// A server's facts as numbers for people and machines: what `kvclient stats` shows, and what the
// endpoint of --metrics serves (README.md describes both).
//
// Thread safety: pure functions; they read what workers count meanwhile. All allocate, and ask the
// system for CPU time, memory and open files.
#pragma once

#include <string>

#include "server/facts.h"

namespace rkv::server {

// How the server is, for who looks from outside.
struct ServerState {
  enum Phase : std::uint8_t { kStarting, kReady, kStopping };
  Phase phase = kStarting;
  std::string doing;      // kStarting: "opening the database"
  std::string stuck;      // not empty: what does not go on
  double wal_lag_s = 0;   // age of the oldest write that is not in the write-ahead log
  double sync_lag_s = 0;  // that is not synced
  std::uint64_t unix_ms_at_start = 0;
};
// "starting", "ready", "stopping".
const char* to_string(ServerState::Phase phase);

// Slots of the index that lead to a record.
std::uint64_t index_slots_used(const StoreStats& store);
// Requests that a worker has taken and not answered yet.
std::uint64_t requests_waiting(const WorkerFacts& worker);
// Requests that its clients may have under way.
std::uint64_t credits_granted(const WorkerFacts& worker);
// Keys that clients said they had found by READ.
std::uint64_t told_reads(const ServerFacts& facts);

// Whether clients can reach the server by any of its networks.
bool has_way_in(const ServerFacts& facts);
// A line for each network that they cannot.
std::string closed_endpoints(const ServerFacts& facts);

// The answer to a stats request: a JSON object.
std::string stats_json(const ServerFacts& facts);
// `facts` is nullptr until the server has begun to serve.
std::string status_json(const ServerState& state, const ServerFacts* facts);
// In Prometheus' text format.
std::string metrics_text(const ServerState& state, const ServerFacts* facts);

}  // namespace rkv::server
