// What the server counts, and the JSON object that a stats request answers with.
//
// Hot-path counters belong to one worker each and are summed when somebody asks.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "server/store.h"

namespace rkv::server {

// One writer, any readers. On a line of its own: the neighbours' writes cost it nothing.
class alignas(64) WorkerCounters {
 public:
  enum Counter : std::uint8_t {
    kPuts,        // acknowledged
    kCounts,      // operations on counters, acknowledged
    kRemoves,     // acknowledged
    kWalWrites,   // of these three, answered when they were in the write-ahead log
    kSyncWrites,  // or synced
    kGets,        // two-sided, found or not
    kPings,
    kFlushes,       // acknowledged
    kBackups,       // made
    kScanPages,     // answered
    kRefused,       // answered with an error other than "not found"
    kMalformed,     // of those: bytes that are no request
    kDeferred,      // had to wait for a buffer: to answer from, or to be READ into
    kLongRequests,  // READ from the client's memory, not SENT
    kAccepted,      // connections
    kDropped,       // connections ended for breaking the protocol
    kCount
  };
  // Plain load and store: there is one writer, so nothing atomic has to be paid for.
  void add(Counter counter) {
    auto& value = values_[counter];
    value.store(value.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::uint64_t get(Counter counter) const {
    return values_[counter].load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> values_[kCount] = {};
};

// What the JSON says besides the counters.
struct ServerFacts {
  StoreStats store;
  std::uint64_t memory_limit_bytes = 0;
  std::uint64_t connections = 0;
  std::uint64_t max_clients = 0;
  std::uint64_t queue_bytes = 0;
  std::uint64_t queue_capacity_bytes = 0;
  std::uint64_t last_begun = 0;
  std::uint64_t wal_mark = 0;
  std::uint64_t sync_mark = 0;
  std::uint64_t batches = 0;
  std::uint64_t syncs = 0;
  std::uint64_t coalesced = 0;
  std::uint64_t queue_full = 0;
  Durability durability = Durability::kMemory;
  bool persistent = false;
  DiskState disk = DiskState::kWell;
  std::uint64_t disk_failures = 0;   // since the start
  std::uint64_t damaged_reads = 0;   // of the disk, that met what makes no sense
  std::uint64_t disk_failed_ms = 0;  // how long it has not been well
  std::uint64_t epoch = 0;
  std::uint16_t boot = 0;
  std::uint64_t uptime_ms = 0;
  std::string device;
};

// Adds the CPU time of the process (getrusage). Allocates.
std::string stats_json(std::span<const WorkerCounters* const> workers, const ServerFacts& facts);

}  // namespace rkv::server
