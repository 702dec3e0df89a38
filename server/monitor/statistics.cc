#include "server/monitor/statistics.h"

#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

namespace rkv::server {

namespace {

using Section = Statistic::Section;
using Value = Statistic::Value;
using InJson = Statistic::InJson;
using Metric = Statistic::Metric;

using Get = Value (*)(const Observed&);

template <WorkerCounters::Counter kCounter>
Value sum(const Observed& seen) {
  return seen.facts->sum(kCounter);
}
template <auto kMember>
Value store(const Observed& seen) {
  return seen.facts->store.*kMember;
}
template <auto kMember>
Value memory(const Observed& seen) {
  return seen.facts->memory.*kMember;
}
template <auto kMember>
Value log(const Observed& seen) {
  return seen.facts->log.*kMember;
}
template <auto kMember>
Value applier(const Observed& seen) {
  return seen.facts->log.applier.*kMember;
}
template <auto kMember>
Value process(const Observed& seen) {
  const std::optional<std::uint64_t> known = seen.process.*kMember;
  return known ? Value(*known) : Value();
}

Value refused(const Observed& seen) {
  const RefusalCounts& all = seen.facts->refusals;
  return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
}
Value disk_state(const Observed& seen) {
  const LogFacts& log = seen.facts->log;
  return std::string_view(log.persistent ? log.disk_name() : "none");
}

// Rows that are in JSON alone, in metrics alone, and in both.
constexpr Statistic json_only(Section section, InJson json, std::string_view name,
                              std::string_view help, Get value) {
  return {section, json, name, Metric::kNone, {}, {}, help, value};
}
constexpr Statistic metric_only(Section section, Metric metric, std::string_view family,
                                std::string_view help, Get value) {
  return {section, InJson::kNone, {}, metric, family, {}, help, value};
}
constexpr Statistic labelled(Section section, InJson json, std::string_view name, Metric metric,
                             std::string_view family, std::string_view label, std::string_view help,
                             Get value) {
  return {section, json, name, metric, family, label, help, value};
}
constexpr Statistic both(Section section, InJson json, std::string_view name, Metric metric,
                         std::string_view family, std::string_view help, Get value) {
  return labelled(section, json, name, metric, family, {}, help, value);
}

// The rows of one family of metrics follow one another.
constexpr auto kStatistics = [] {
  using enum Section;
  using enum Metric;
  using Counters = WorkerCounters;
  constexpr InJson kStats = InJson::kStats;
  constexpr InJson kStatus = InJson::kStatus;
  return std::to_array<Statistic>({
      // ---- requests
      json_only(kRequests, kStats, "puts", "PUTs that succeeded.", sum<Counters::kPuts>),
      json_only(kRequests, kStats, "touches", "Times to live that were changed.",
                sum<Counters::kTouches>),
      json_only(kRequests, kStats, "removes", "Removes of keys that existed.",
                sum<Counters::kRemoves>),
      json_only(kRequests, kStats, "counter_operations",
                "Changes of counters, and swaps that found another number.",
                sum<Counters::kCounts>),
      json_only(kRequests, kStats, "two_sided_gets", "GETs by request.", sum<Counters::kGets>),
      json_only(kRequests, kStats, "pings", "Pings answered.", sum<Counters::kPings>),
      json_only(kRequests, kStats, "flushes", "Flushes answered.", sum<Counters::kFlushes>),
      json_only(kRequests, kStats, "backups", "Backups made.", sum<Counters::kBackups>),
      json_only(kRequests, kStats, "scan_pages", "Pages of scans answered.",
                sum<Counters::kScanPages>),
      labelled(kRequests, kStats, "wal_writes", kCounter, "kvserver_durable_writes_total",
               "level=wal", "Writes that were answered at the requested durability, above memory.",
               sum<Counters::kWalWrites>),
      labelled(kRequests, kStats, "sync_writes", kCounter, "kvserver_durable_writes_total",
               "level=sync", "Writes that were answered at the requested durability, above memory.",
               sum<Counters::kSyncWrites>),
      json_only(kRequests, kStats, "outcomes_asked",
                "Questions about writes whose answers were lost.", sum<Counters::kOutcomesAsked>),
      json_only(kRequests, kStats, "outcomes_applied", "Of these, about writes that were applied.",
                sum<Counters::kOutcomesApplied>),
      json_only(kRequests, kStats, "outcomes_unknown",
                "Of these, about writes of unknown sessions.", sum<Counters::kOutcomesUnknown>),
      json_only(kRequests, kStats, "refused",
                "Requests answered with an error other than \"not found\".",
                sum<Counters::kRefused>),
      both(kRequests, kStats, "malformed", kCounter, "kvserver_requests_malformed_total",
           "Messages that were not a valid request.", sum<Counters::kMalformed>),
      both(kRequests, kStats, "deferred", kCounter, "kvserver_requests_deferred_total",
           "Requests that had to wait for a buffer.", sum<Counters::kDeferred>),
      both(kRequests, kStats, "long_requests", kCounter, "kvserver_long_requests_total",
           "Requests READ from the client's memory because they were too long to send.",
           sum<Counters::kLongRequests>),
      metric_only(kRequests, kCounter, "kvserver_requests_received_total",
                  "Requests taken from the receive queues.", sum<Counters::kReceived>),
      metric_only(kRequests, kCounter, "kvserver_requests_abandoned_total",
                  "Requests whose client disconnected before the answer.",
                  sum<Counters::kAbandoned>),
      // ---- clients
      json_only(kClients, kStats, "connections", "Clients connected.",
                [](const Observed& seen) -> Value { return seen.facts->connections(); }),
      both(kClients, kStats, "max_clients", kGauge, "kvserver_max_connections",
           "Clients that may be connected (--max-clients).",
           [](const Observed& seen) -> Value { return seen.facts->max_clients; }),
      both(kClients, kStats, "connections_accepted", kCounter,
           "kvserver_connections_accepted_total", "Connections accepted.",
           sum<Counters::kAccepted>),
      metric_only(kClients, kCounter, "kvserver_connections_ended_total",
                  "Connections that have ended, for any reason.", sum<Counters::kEnded>),
      json_only(kClients, kStats, "connections_dropped",
                "Connections that the server closed while the client was alive.",
                sum<Counters::kDropped>),
      json_only(kClients, kStats, "connections_refused", "Clients that were not accepted.",
                refused),
      metric_only(kClients, kCounter, "kvserver_challenges_total",
                  "Clients that were asked to prove which user they are.",
                  [](const Observed& seen) -> Value { return seen.facts->challenges; }),
      both(kClients, kStats, "reads_reported_by_clients", kCounter, "kvserver_reported_reads_total",
           "Keys that clients found by READ: a sample, at most 64 with a GET by request.",
           [](const Observed& seen) -> Value { return seen.facts->reported_reads(); }),
      json_only(kClients, kStatus, "access", "Which clients may connect.",
                [](const Observed& seen) -> Value { return seen.facts->access; }),
      // ---- memory
      both(kMemory, kStats, "memory_limit_bytes", kGauge, "kvserver_memory_limit_bytes",
           "Limit for index and records (--memory).", memory<&MemoryFacts::limit_bytes>),
      labelled(kMemory, kStatus, "index_bytes", kGauge, "kvserver_memory_bytes", "kind=index",
               "Memory allocated so far, by purpose.", memory<&MemoryFacts::index_bytes>),
      labelled(kMemory, kStats, "data_bytes", kGauge, "kvserver_memory_bytes", "kind=data",
               "Memory allocated so far, by purpose.", store<&StoreStats::data_bytes>),
      labelled(kMemory, kStatus, "message_bytes", kGauge, "kvserver_memory_bytes", "kind=message",
               "Memory allocated so far, by purpose.", memory<&MemoryFacts::message_bytes>),
      both(kMemory, kStats, "memory_bytes", kGauge, "kvserver_registered_bytes",
           "Memory that clients may READ, allocated so far.", store<&StoreStats::memory_bytes>),
      both(kMemory, kStats, "data_bytes_used", kGauge, "kvserver_data_used_bytes",
           "Data memory in blocks that hold records.", store<&StoreStats::data_bytes_used>),
      both(kMemory, kStats, "longest_free_bytes", kGauge, "kvserver_longest_free_bytes",
           "Longest free run of data memory, about: a longer value needs others to be moved or "
           "dropped.",
           store<&StoreStats::longest_free_bytes>),
      both(kMemory, kStats, "large_bytes_under_way", kGauge, "kvserver_large_bytes_under_way",
           "Data memory in blocks of large values that are still arriving.",
           store<&StoreStats::large_bytes_under_way>),
      both(kMemory, kStats, "large_values_refused", kCounter, "kvserver_large_values_refused_total",
           "Large values refused because others under way have all memory for them.",
           store<&StoreStats::large_refused>),
      labelled(kMemory, kStatus, "index_extents", kGauge, "kvserver_extents", "kind=index",
               "Memory regions of the store.", memory<&MemoryFacts::index_extents>),
      labelled(kMemory, kStatus, "data_extents", kGauge, "kvserver_extents", "kind=data",
               "Memory regions of the store.", memory<&MemoryFacts::data_extents>),
      both(kMemory, kStats, "evicted_records", kCounter, "kvserver_evicted_records_total",
           "Records that left memory to free it; with --evict they were dropped.",
           store<&StoreStats::evicted>),
      both(kMemory, kStats, "promoted_records", kCounter, "kvserver_promoted_records_total",
           "Records read back into memory because a client requested them.",
           store<&StoreStats::promoted>),
      both(kMemory, kStats, "expiring_records", kGauge, "kvserver_expiring_records",
           "Records with a time to live.", store<&StoreStats::expiring>),
      both(kMemory, kStats, "expired_records", kCounter, "kvserver_expired_records_total",
           "Records removed because their time to live ended.", store<&StoreStats::expired>),
      // ---- index
      both(kIndex, kStats, "records", kGauge, "kvserver_memory_records", "Records in memory.",
           store<&StoreStats::records>),
      both(kIndex, kStats, "records_on_disk", kGauge, "kvserver_disk_only_records",
           "Records known to be on disk and not in memory.", store<&StoreStats::records_on_disk>),
      both(kIndex, kStats, "stashed_records", kGauge, "kvserver_stashed_records",
           "Records in the stash, which only the server can find.",
           store<&StoreStats::stashed_records>),
      both(kIndex, kStats, "index_slots", kGauge, "kvserver_index_slots", "Slots of the index.",
           store<&StoreStats::index_slots>),
      both(kIndex, kStats, "index_slots_used", kGauge, "kvserver_index_used_slots",
           "Slots of the index that refer to a record.",
           [](const Observed& seen) -> Value { return index_slots_used(seen.facts->store); }),
      both(kIndex, kStatus, "index_segments", kGauge, "kvserver_index_segments",
           "Segments of the index in use.", memory<&MemoryFacts::segments>),
      both(kIndex, kStatus, "unused_segments", kGauge, "kvserver_index_unused_segments",
           "Segments ready for splits.", memory<&MemoryFacts::unused_segments>),
      both(kIndex, kStats, "index_splits", kCounter, "kvserver_index_splits_total",
           "Segments split because they were full.", store<&StoreStats::index_splits>),
      labelled(kIndex, kStats, "puts_in_place", kCounter, "kvserver_puts_stored_total",
               "place=same", "Values written, by whether they replaced the old value in place.",
               store<&StoreStats::puts_in_place>),
      labelled(kIndex, kStats, "puts_moved", kCounter, "kvserver_puts_stored_total", "place=new",
               "Values written, by whether they replaced the old value in place.",
               store<&StoreStats::puts_moved>),
      both(kIndex, kStats, "one_sided_counters", kGauge, "kvserver_one_sided_keys",
           "Counters that clients currently change by atomics.",
           store<&StoreStats::one_sided_counters>),
      both(kIndex, kStats, "counter_cells", kGauge, "kvserver_cells",
           "Cells for one-sided counters.", store<&StoreStats::counter_cells>),
      both(kIndex, kStats, "counter_cells_taken", kCounter, "kvserver_cells_taken_total",
           "Cells used since the start.", store<&StoreStats::counter_cells_taken>),
      // ---- persistence
      json_only(kPersistence, kStats, "persistent", "Whether there is a data directory.",
                log<&LogFacts::persistent>),
      json_only(kPersistence, kStats, "durability", "The server's default (--durability).",
                [](const Observed& seen) -> Value {
                  return std::string_view(to_string(seen.facts->durability));
                }),
      both(kPersistence, kStats, "queue_bytes", kGauge, "kvserver_queue_bytes",
           "Size of the writes that are queued and not synced.", log<&LogFacts::queue_bytes>),
      both(kPersistence, kStats, "queue_capacity_bytes", kGauge, "kvserver_queue_capacity_bytes",
           "Size of the queue (--queue).", log<&LogFacts::queue_capacity_bytes>),
      both(kPersistence, kStats, "queue_full", kCounter, "kvserver_queue_full_total",
           "Writes refused because the queue was full.", log<&LogFacts::queue_full>),
      json_only(kPersistence, kStatus, "writes_applied", "Writes handed to the database.",
                applier<&Applier::Counts::taken>),
      json_only(kPersistence, kStatus, "writes_saved", "Of these, synced.",
                applier<&Applier::Counts::saved>),
      metric_only(kPersistence, kGauge, "kvserver_queue_unsynced_writes",
                  "Writes handed to the database and not synced.",
                  [](const Observed& seen) -> Value { return seen.facts->log.applier.unsynced(); }),
      both(kPersistence, kStatus, "wal_lag_seconds", kGauge, "kvserver_wal_lag_seconds",
           "Age of the oldest write that is not in the write-ahead log, to 0.1 s.",
           [](const Observed& seen) -> Value { return seen.state->wal_lag_s; }),
      both(kPersistence, kStatus, "sync_lag_seconds", kGauge, "kvserver_sync_lag_seconds",
           "Age of the oldest write that is not synced to the disk, to 0.1 s.",
           [](const Observed& seen) -> Value { return seen.state->sync_lag_s; }),
      both(kPersistence, kStats, "last_sequence", kGauge, "kvserver_last_sequence",
           "Sequence of the latest write that has begun: 1 for each 8 bytes of log.",
           log<&LogFacts::last_begun>),
      both(kPersistence, kStats, "wal_mark", kGauge, "kvserver_wal_sequence",
           "Sequence up to which all writes are in the write-ahead log.", log<&LogFacts::wal_mark>),
      both(kPersistence, kStats, "sync_mark", kGauge, "kvserver_sync_sequence",
           "Sequence up to which all writes are synced.", log<&LogFacts::sync_mark>),
      both(kPersistence, kStats, "batches", kCounter, "kvserver_batches_total",
           "Batches written to the database.", applier<&Applier::Counts::batches>),
      both(kPersistence, kStats, "syncs", kCounter, "kvserver_syncs_total",
           "Syncs of the write-ahead log.", applier<&Applier::Counts::syncs>),
      both(kPersistence, kStats, "coalesced_writes", kCounter, "kvserver_coalesced_writes_total",
           "Writes skipped because their batch held a later write of the same key.",
           applier<&Applier::Counts::coalesced>),
      json_only(kPersistence, kStats, "disk_state",
                "The disk's state; none without a data directory.", disk_state),
      json_only(kPersistence, kStats, "disk_failed", "Whether that state is not ok.",
                [](const Observed& seen) -> Value { return !seen.facts->log.disk_is_well(); }),
      both(kPersistence, kStats, "disk_failures", kCounter, "kvserver_disk_failures_total",
           "Failures of the disk.", applier<&Applier::Counts::failures>),
      json_only(kPersistence, kStats, "disk_failed_ms",
                "Duration of the current failure of the disk.", log<&LogFacts::disk_failed_ms>),
      metric_only(kPersistence, kGauge, "kvserver_disk_failing_seconds",
                  "Duration of the current failure of the disk.",
                  [](const Observed& seen) -> Value {
                    return static_cast<double>(seen.facts->log.disk_failed_ms) / 1e3;
                  }),
      both(kPersistence, kStats, "damaged_reads", kCounter, "kvserver_damaged_reads_total",
           "Reads of the disk that found damage.", log<&LogFacts::damaged_reads>),
      both(kPersistence, kStats, "loading", kGauge, "kvserver_loading",
           "1 while records of the last run are loaded into memory.", store<&StoreStats::loading>),
      both(kPersistence, kStatus, "loaded_records", kGauge, "kvserver_loaded_records",
           "Records read by loading since the start, including those that stay on disk.",
           [](const Observed& seen) -> Value { return seen.facts->load.loaded; }),
      both(kPersistence, kStatus, "estimated_records", kGauge, "kvserver_estimated_records",
           "Estimated number of records on disk at the start.",
           [](const Observed& seen) -> Value { return seen.facts->load.estimated; }),
      // ---- process
      json_only(kProcess, kStats, "user_cpu_us", "CPU time of the process in its own code.",
                [](const Observed& seen) -> Value { return seen.time.user_us; }),
      json_only(kProcess, kStats, "system_cpu_us", "CPU time of the process in the kernel.",
                [](const Observed& seen) -> Value { return seen.time.system_us; }),
      both(kProcess, kStatus, "cpu_seconds", kCounter, "process_cpu_seconds_total",
           "CPU time of the process.",
           [](const Observed& seen) -> Value { return seen.process.cpu_seconds; }),
      both(kProcess, kStatus, "resident_bytes", kGauge, "process_resident_memory_bytes",
           "Resident memory, including shared and registered memory.",
           process<&ProcessFacts::resident_bytes>),
      both(kProcess, kStatus, "open_files", kGauge, "process_open_fds", "Open file descriptors.",
           process<&ProcessFacts::open_files>),
      both(kProcess, kStatus, "max_files", kGauge, "process_max_fds",
           "Limit of open file descriptors.", process<&ProcessFacts::max_files>),
      metric_only(kProcess, kGauge, "process_threads", "Threads of the process.",
                  process<&ProcessFacts::threads>),
  });
}();

}  // namespace

std::span<const Statistic> statistics() {
  return kStatistics;
}

void add_statistics(nlohmann::ordered_json& json, InJson which, const Observed& seen) {
  for (const Statistic& row : kStatistics) {
    if (row.json != which) continue;
    nlohmann::ordered_json& value = json[std::string(row.name)];
    std::visit(
        [&](const auto& known) {
          if constexpr (!std::is_same_v<decltype(known), const std::monostate&>) value = known;
        },
        row.value(seen));
  }
}

void add_statistics(Exposition& out, const Observed& seen) {
  std::string_view family;
  for (const Statistic& row : kStatistics) {
    if (row.metric == Metric::kNone) continue;
    if (seen.facts == nullptr && row.section != Section::kProcess) continue;
    const Value value = row.value(seen);
    if (std::holds_alternative<std::monostate>(value)) continue;
    if (row.family != family)
      out.family(row.family, row.metric == Metric::kCounter ? "counter" : "gauge", row.help);
    family = row.family;
    const auto sample = [&](auto number) {
      const std::size_t equals = row.label.find('=');
      if (equals == std::string_view::npos) return out.sample({}, number);
      out.sample({{row.label.substr(0, equals), row.label.substr(equals + 1)}}, number);
    };
    if (const auto* const real = std::get_if<double>(&value)) sample(*real);
    if (const auto* const whole = std::get_if<std::uint64_t>(&value)) sample(*whole);
    if (const auto* const truth = std::get_if<bool>(&value)) sample(*truth ? 1 : 0);
  }
}

std::string_view to_string(Section section) {
  switch (section) {
    case Section::kRequests:
      return "requests";
    case Section::kClients:
      return "clients";
    case Section::kMemory:
      return "memory";
    case Section::kIndex:
      return "index";
    case Section::kPersistence:
      return "persistence";
    case Section::kProcess:
      return "process";
  }
  return "unknown";
}

}  // namespace rkv::server
