// The reply to a stats request.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/process_time.h"
#include "server/monitor/group_reports.h"
#include "server/monitor/reports.h"
#include "server/program/options.h"

namespace rkv::server {

namespace {

using Json = nlohmann::ordered_json;

Json endpoints_json(const ServerFacts& facts) {
  Json endpoints = Json::array();
  for (const EndpointFacts& endpoint : facts.endpoints) {
    endpoints.push_back({{"transport", endpoint.transport},
                         {"state", rdma::to_string(endpoint.state)},
                         {"why", endpoint.why},
                         {"device", endpoint.device},
                         {"devices_lost", endpoint.losses}});
  }
  return endpoints;
}

Json requests_json(const ServerFacts& facts) {
  return {
      {"connections", facts.connections()},
      {"max_clients", facts.max_clients},
      {"connections_accepted", facts.sum(WorkerCounters::kAccepted)},
      {"connections_dropped", facts.sum(WorkerCounters::kDropped)},
      {"connections_refused",
       std::accumulate(facts.refusals.begin(), facts.refusals.end(), std::uint64_t{0})},
      {"puts", facts.sum(WorkerCounters::kPuts)},
      {"counter_operations", facts.sum(WorkerCounters::kCounts)},
      {"removes", facts.sum(WorkerCounters::kRemoves)},
      {"two_sided_gets", facts.sum(WorkerCounters::kGets)},
      {"reads_reported_by_clients", facts.reported_reads()},
      {"wal_writes", facts.sum(WorkerCounters::kWalWrites)},
      {"sync_writes", facts.sum(WorkerCounters::kSyncWrites)},
      {"pings", facts.sum(WorkerCounters::kPings)},
      {"flushes", facts.sum(WorkerCounters::kFlushes)},
      {"backups", facts.sum(WorkerCounters::kBackups)},
      {"scan_pages", facts.sum(WorkerCounters::kScanPages)},
      {"outcomes_asked", facts.sum(WorkerCounters::kOutcomesAsked)},
      {"outcomes_applied", facts.sum(WorkerCounters::kOutcomesApplied)},
      {"outcomes_unknown", facts.sum(WorkerCounters::kOutcomesUnknown)},
      {"refused", facts.sum(WorkerCounters::kRefused)},
      {"malformed", facts.sum(WorkerCounters::kMalformed)},
      {"deferred", facts.sum(WorkerCounters::kDeferred)},
      {"long_requests", facts.sum(WorkerCounters::kLongRequests)},
  };
}

Json store_json(const ServerFacts& facts) {
  const StoreStats& store = facts.store;
  return {
      {"records", store.records},
      {"records_on_disk", store.records_on_disk},
      {"loading", store.loading},
      {"evicted_records", store.evicted},
      {"promoted_records", store.promoted},
      {"stashed_records", store.stashed_records},
      {"puts_in_place", store.puts_in_place},
      {"puts_moved", store.puts_moved},
      {"longest_free_bytes", store.longest_free_bytes},
      {"large_bytes_under_way", store.large_bytes_under_way},
      {"large_values_refused", store.large_refused},
      {"expiring_records", store.expiring},
      {"expired_records", store.expired},
      {"one_sided_counters", store.one_sided_counters},
      {"counter_cells", store.counter_cells},
      {"counter_cells_taken", store.counter_cells_taken},
      {"memory_limit_bytes", facts.memory.limit_bytes},
      {"memory_bytes", store.memory_bytes},
      {"index_splits", store.index_splits},
      {"data_bytes", store.data_bytes},
      {"data_bytes_used", store.data_bytes_used},
      {"index_slots", store.index_slots},
      {"index_slots_used", index_slots_used(store)},
  };
}

Json disk_json(const ServerFacts& facts) {
  const LogFacts& log = facts.log;
  return {
      {"persistent", log.persistent},
      {"durability", to_string(facts.durability)},
      {"batches", log.applier.batches},
      {"syncs", log.applier.syncs},
      {"coalesced_writes", log.applier.coalesced},
      {"queue_full", log.queue_full},
      {"disk_state", log.persistent ? log.disk_name() : "none"},
      {"disk_failed", !log.disk_is_well()},
      {"disk_failures", log.applier.failures},
      {"damaged_reads", log.damaged_reads},
      {"disk_failed_ms", log.disk_failed_ms},
      {"queue_bytes", log.queue_bytes},
      {"queue_capacity_bytes", log.queue_capacity_bytes},
      {"last_sequence", log.last_begun},
      {"wal_mark", log.wal_mark},
      {"sync_mark", log.sync_mark},
  };
}

}  // namespace

std::uint64_t index_slots_used(const StoreStats& store) {
  // The two counts are not read at one instant.
  return store.records + store.records_on_disk - std::min(store.records, store.stashed_records);
}

std::string stats_json(const ServerFacts& facts) {
  const ProcessTime used = ProcessTime::now();
  Json json = {
      {"version", kServerVersion}, {"uptime_ms", facts.uptime_ms}, {"epoch", facts.epoch},
      {"boot", facts.boot},        {"device", facts.device},
  };
  json["endpoints"] = endpoints_json(facts);
  json.update(requests_json(facts));
  json.update(store_json(facts));
  json.update(disk_json(facts));
  if (facts.group != nullptr) json["group"] = group_json(*facts.group);
  json.update(Json{
      {"user_cpu_us", used.user_us},
      {"system_cpu_us", used.system_us},
  });
  // A device's name comes from outside: bytes that are not valid UTF-8 are replaced; the library
  // would throw otherwise.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rkv::server
