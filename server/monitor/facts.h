// A snapshot of a running server. It is gathered on demand; reports.h turns it into output for
// people and machines.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rkv/durability.h"
#include "server/clients/network/facts.h"
#include "server/group/replica/group_status.h"
#include "server/persistence/applier.h"
#include "server/request/timings.h"
#include "server/request/worker_counters.h"
#include "server/store/store.h"

namespace rkv::server {

struct MemoryFacts {
  std::uint64_t limit_bytes = 0;
  std::uint64_t index_bytes = 0;  // index extents
  std::uint64_t index_extents = 0;
  std::uint64_t data_extents = 0;
  std::uint64_t segments = 0;         // in use
  std::uint64_t unused_segments = 0;  // created, waiting for a split
  std::uint64_t message_bytes = 0;    // buffers for requests and replies
};

struct LogFacts {
  bool persistent = false;
  std::uint64_t queue_bytes = 0;
  std::uint64_t queue_capacity_bytes = 0;
  std::uint64_t last_begun = 0;
  std::uint64_t wal_mark = 0;
  std::uint64_t sync_mark = 0;
  std::uint64_t queue_full = 0;
  DiskState disk = DiskState::kOk;
  Applier::Counts applier;
  std::uint64_t damaged_reads = 0;   // disk reads that found invalid bytes
  std::uint64_t disk_failed_ms = 0;  // how long the disk has been failing
  // The disk state is kOk, but the disk has not answered for Applier::kHungAfter or longer.
  bool disk_hangs = false;

  bool disk_is_well() const { return disk == DiskState::kOk && !disk_hangs; }
  // Name of the disk's state in the statistics.
  const char* disk_name() const { return disk_hangs ? kHung : to_string(disk); }
  static constexpr const char* kHung = "hung";
};

// Progress of loading after a start.
struct LoadFacts {
  std::uint64_t loaded = 0;  // records so far
  std::uint64_t estimated = 0;
};

struct ServerFacts {
  StoreStats store;
  MemoryFacts memory;
  LogFacts log;
  LoadFacts load;
  std::vector<WorkerFacts> workers;
  std::vector<EndpointFacts> endpoints;
  RefusalCounts refusals{};      // connections refused, by reason
  std::uint64_t challenges = 0;  // clients that were asked to prove which user they are
  std::uint64_t max_clients = 0;
  Durability durability = Durability::kMemory;
  std::uint64_t epoch = 0;
  std::uint32_t boot = 0;
  std::uint64_t uptime_ms = 0;
  std::string device;
  std::shared_ptr<const GroupStatus> group{};  // nullptr: in no group
  std::string_view access;  // a sentence without a full stop, static: who may connect

  std::uint64_t sum(WorkerCounters::Counter counter) const {
    return total([&](const WorkerFacts& worker) { return worker.counters->get(counter); });
  }
  std::uint64_t drops(DropReason reason) const {
    return total([&](const WorkerFacts& worker) { return worker.counters->drops(reason); });
  }
  std::uint64_t connections() const { return total(&WorkerFacts::clients); }
  // Keys that clients have reported as found by READ.
  std::uint64_t reported_reads() const { return total(&WorkerFacts::reported_reads); }
  std::uint64_t answers(Opcode opcode, std::size_t status) const {
    return total(
        [&](const WorkerFacts& worker) { return worker.counters->answers(opcode, status); });
  }
  TimingSum timings(Opcode opcode) const {
    TimingSum sum;
    for (const WorkerFacts& worker : workers)
      worker.timings->add_to(sum, opcode);
    return sum;
  }
  // Sum of `get` over the workers.
  template <class Get>
  std::uint64_t total(Get get) const {
    std::uint64_t sum = 0;
    for (const WorkerFacts& worker : workers)
      sum += std::invoke(get, worker);
    return sum;
  }
};

}  // namespace rkv::server
