#include "server/metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/process_time.h"
#include "server/options.h"

namespace rkv::server {

namespace {

nlohmann::ordered_json disk_json(const ServerFacts& facts) {
  return {
      {"persistent", facts.persistent},
      {"durability", to_string(facts.durability)},
      {"batches", facts.batches},
      {"syncs", facts.syncs},
      {"coalesced_writes", facts.coalesced},
      {"queue_full", facts.queue_full},
      {"disk_state", facts.persistent ? to_string(facts.disk) : "none"},
      {"disk_failed", facts.disk != DiskState::kWell},
      {"disk_failures", facts.disk_failures},
      {"damaged_reads", facts.damaged_reads},
      {"disk_failed_ms", facts.disk_failed_ms},
      {"queue_bytes", facts.queue_bytes},
      {"queue_capacity_bytes", facts.queue_capacity_bytes},
      {"last_sequence", facts.last_begun},
      {"wal_mark", facts.wal_mark},
      {"sync_mark", facts.sync_mark},
  };
}

}  // namespace

std::string stats_json(std::span<const WorkerCounters* const> workers, const ServerFacts& facts) {
  const auto sum = [&](WorkerCounters::Counter counter) {
    std::uint64_t total = 0;
    for (const WorkerCounters* worker : workers)
      total += worker->get(counter);
    return total;
  };
  const ProcessTime used = ProcessTime::now();
  nlohmann::ordered_json json = {
      {"version", kServerVersion},
      {"uptime_ms", facts.uptime_ms},
      {"epoch", facts.epoch},
      {"boot", facts.boot},
      {"device", facts.device},
      {"connections", facts.connections},
      {"max_clients", facts.max_clients},
      {"connections_accepted", sum(WorkerCounters::kAccepted)},
      {"connections_dropped", sum(WorkerCounters::kDropped)},
      {"puts", sum(WorkerCounters::kPuts)},
      {"counter_operations", sum(WorkerCounters::kCounts)},
      {"removes", sum(WorkerCounters::kRemoves)},
      {"two_sided_gets", sum(WorkerCounters::kGets)},
      {"wal_writes", sum(WorkerCounters::kWalWrites)},
      {"sync_writes", sum(WorkerCounters::kSyncWrites)},
      {"pings", sum(WorkerCounters::kPings)},
      {"flushes", sum(WorkerCounters::kFlushes)},
      {"backups", sum(WorkerCounters::kBackups)},
      {"scan_pages", sum(WorkerCounters::kScanPages)},
      {"refused", sum(WorkerCounters::kRefused)},
      {"malformed", sum(WorkerCounters::kMalformed)},
      {"deferred", sum(WorkerCounters::kDeferred)},
      {"long_requests", sum(WorkerCounters::kLongRequests)},
      {"records", facts.store.records},
      {"records_on_disk", facts.store.records_on_disk},
      {"loading", facts.store.loading},
      {"evicted_records", facts.store.evicted},
      {"promoted_records", facts.store.promoted},
      {"stashed_records", facts.store.stashed_records},
      {"puts_in_place", facts.store.puts_in_place},
      {"puts_moved", facts.store.puts_moved},
      {"expiring_records", facts.store.expiring},
      {"expired_records", facts.store.expired},
      {"one_sided_counters", facts.store.one_sided_counters},
      {"counter_cells", facts.store.counter_cells},
      {"counter_cells_taken", facts.store.counter_cells_taken},
      {"memory_limit_bytes", facts.memory_limit_bytes},
      {"memory_bytes", facts.store.memory_bytes},
      {"index_splits", facts.store.index_splits},
      {"data_bytes", facts.store.data_bytes},
      {"data_bytes_used", facts.store.data_bytes_used},
      {"index_slots", facts.store.index_slots},
      // The two are not counted at one instant.
      {"index_slots_used", facts.store.records + facts.store.records_on_disk -
                               std::min(facts.store.records, facts.store.stashed_records)},
  };
  json.update(disk_json(facts));
  json.update(nlohmann::ordered_json{
      {"user_cpu_us", used.user_us},
      {"system_cpu_us", used.system_us},
  });
  // A device's name is not ours: bytes that are no UTF-8 are replaced instead of thrown at us.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rkv::server
