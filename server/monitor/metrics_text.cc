// The answer of /metrics. From version 1.0 on, names do not change: dashboards and alarms depend on
// them.
#include <optional>

#include "server/monitor/exposition.h"
#include "server/monitor/group_reports.h"
#include "server/monitor/process_facts.h"
#include "server/monitor/reports.h"
#include "server/program/options.h"

namespace rkv::server {

namespace {

constexpr double kNanosecond = 1e-9;

void counter(Exposition& out, std::string_view name, std::string_view help, std::uint64_t value) {
  out.one(name, "counter", help, value);
}
void gauge(Exposition& out, std::string_view name, std::string_view help, std::uint64_t value) {
  out.one(name, "gauge", help, value);
}
void seconds(Exposition& out, std::string_view name, std::string_view help, double value) {
  out.one(name, "gauge", help, value);
}

void known(Exposition& out, std::string_view name, std::string_view help,
           const std::optional<std::uint64_t>& value) {
  if (value) gauge(out, name, help, *value);
}

// Adds one sample per worker.
template <class Value>
void by_worker(Exposition& out, const ServerFacts& facts, std::string_view name,
               std::string_view type, std::string_view help, Value value) {
  out.family(name, type, help);
  for (const WorkerFacts& worker : facts.workers) {
    out.sample({{"transport", worker.transport}, {"worker", std::to_string(worker.number)}},
               std::uint64_t{value(worker)});
  }
}

void add_process(Exposition& out, const ServerState& state, const ServerFacts* facts) {
  const ProcessFacts process = ProcessFacts::now();
  out.family("kvserver_build_info", "gauge", "Always 1; the label is the version.");
  out.sample({{"version", kServerVersion}}, 1);
  out.one("kvserver_ready", "gauge", "1 while clients are served, or as a backup in sync.",
          is_ready(state, facts) ? 1 : 0);
  out.one("kvserver_healthy", "gauge", "1 while neither the main thread nor a worker is stuck.",
          state.stuck.empty() ? 1 : 0);
  // Metrics of any process, under the names that all programs use.
  out.one("process_start_time_seconds", "gauge", "Start time of the process, as Unix time.",
          static_cast<double>(state.unix_ms_at_start) / 1e3);
  out.one("process_cpu_seconds_total", "counter", "CPU time of the process.", process.cpu_seconds);
  known(out, "process_resident_memory_bytes",
        "Resident memory, including shared and registered memory.", process.resident_bytes);
  known(out, "process_open_fds", "Open file descriptors.", process.open_files);
  known(out, "process_max_fds", "Limit of open file descriptors.", process.max_files);
  known(out, "process_threads", "Threads of the process.", process.threads);
}

// "ok" and "not_found" are always present, so that rates work from the first request on. Other
// statuses are present once they have occurred.
void add_requests(Exposition& out, const ServerFacts& facts) {
  out.family("kvserver_requests_total", "counter",
             "Requests answered (two-sided), by operation and status.");
  for (std::size_t number = 1; number < kOperations; ++number) {
    const auto opcode = static_cast<Opcode>(number);
    if (opcode == Opcode::kLong) continue;  // counted under the operation it carries
    for (std::size_t status = 0; status < kStatuses; ++status) {
      const std::uint64_t count = facts.answers(opcode, status);
      if (count == 0 && status > 1) continue;
      out.sample({{"operation", to_string(opcode)}, {"status", status_name(status)}}, count);
    }
  }
}

void add_latencies(Exposition& out, const ServerFacts& facts) {
  out.family("kvserver_request_duration_seconds", "histogram",
             "Time from taking a request from the receive queue to posting its answer.");
  for (std::size_t number = 1; number < kOperations; ++number) {
    const auto opcode = static_cast<Opcode>(number);
    if (opcode == Opcode::kLong) continue;
    const TimingSum sum = facts.timings(opcode);
    const std::string_view operation = to_string(opcode);
    // 256 ns to 17 s in steps of two powers of two, and +Inf: 15 buckets per operation.
    for (unsigned power = 8; power <= 34; power += 2) {
      const double bound = static_cast<double>(std::uint64_t{1} << power) * kNanosecond;
      out.part("_bucket", {{"operation", operation}, {"le", Exposition::number(bound)}},
               sum.at_most_power(power));
    }
    out.part("_bucket", {{"operation", operation}, {"le", "+Inf"}}, sum.count);
    out.part("_sum", {{"operation", operation}}, static_cast<double>(sum.sum_ns) * kNanosecond);
    out.part("_count", {{"operation", operation}}, sum.count);
  }
}

// Refused and ended connections, and errors that the network reported for operations.
void add_endings(Exposition& out, const ServerFacts& facts) {
  out.family("kvserver_connections_refused_total", "counter",
             "Clients that were not accepted, by reason.");
  for (std::size_t i = 0; i < kRefusalReasons; ++i)
    out.sample({{"reason", name_of(static_cast<RefusalReason>(i))}}, facts.refusals[i]);
  counter(out, "kvserver_challenges_total", "Clients that were asked to prove which user they are.",
          facts.challenges);
  out.family("kvserver_connections_dropped_total", "counter",
             "Connections that the server closed while the client was alive, by reason.");
  for (std::size_t i = 0; i < kDropReasons; ++i) {
    const auto reason = static_cast<DropReason>(i);
    out.sample({{"reason", name_of(reason)}}, facts.drops(reason));
  }
  out.family("kvserver_completion_errors_total", "counter",
             "Failed operations on connections. flushed: the connection had ended before, which is "
             "not a fault.");
  for (const auto kind : kCompletionKinds) {
    for (const auto error : kCompletionErrors) {
      out.sample({{"operation", name_of(kind)}, {"error", name_of(error)}},
                 facts.total([&](const WorkerFacts& worker) {
                   return worker.counters->failures(kind, error);
                 }));
    }
  }
}

void add_clients(Exposition& out, const ServerFacts& facts) {
  by_worker(out, facts, "kvserver_connections", "gauge", "Clients connected.",
            [](const WorkerFacts& worker) { return worker.clients; });
  gauge(out, "kvserver_max_connections", "Clients that may be connected (--max-clients).",
        facts.max_clients);
  counter(out, "kvserver_connections_accepted_total", "Connections accepted.",
          facts.sum(WorkerCounters::kAccepted));
  counter(out, "kvserver_connections_ended_total", "Connections that have ended, for any reason.",
          facts.sum(WorkerCounters::kEnded));
  add_endings(out, facts);
  by_worker(out, facts, "kvserver_turns_total", "counter", "Turns of a worker's loop.",
            [](const WorkerFacts& worker) { return worker.counters->get(WorkerCounters::kTurns); });
  by_worker(out, facts, "kvserver_requests_waiting", "gauge",
            "Requests taken from the receive queue and not answered yet.", requests_waiting);
  by_worker(out, facts, "kvserver_credits", "gauge",
            "Requests that connected clients may have in flight.", credits_granted);
  by_worker(out, facts, "kvserver_receive_buffers", "gauge", "Buffers of the receive queue.",
            [](const WorkerFacts& worker) { return worker.room->receives; });
  counter(out, "kvserver_requests_received_total", "Requests taken from the receive queues.",
          facts.sum(WorkerCounters::kReceived));
  counter(out, "kvserver_requests_abandoned_total",
          "Requests whose client disconnected before the answer.",
          facts.sum(WorkerCounters::kAbandoned));
  counter(out, "kvserver_requests_deferred_total", "Requests that had to wait for a buffer.",
          facts.sum(WorkerCounters::kDeferred));
  counter(out, "kvserver_requests_malformed_total", "Messages that were not a valid request.",
          facts.sum(WorkerCounters::kMalformed));
  counter(out, "kvserver_long_requests_total",
          "Requests READ from the client's memory because they were too long to send.",
          facts.sum(WorkerCounters::kLongRequests));
}

void add_endpoints(Exposition& out, const ServerFacts& facts) {
  out.family("kvserver_endpoint_state", "gauge", "1 for the current state of a network's device.");
  for (const EndpointFacts& endpoint : facts.endpoints) {
    for (std::size_t i = 0; i < rdma::kDeviceStates; ++i) {
      const auto state = static_cast<rdma::DeviceState>(i);
      out.sample({{"transport", endpoint.transport}, {"state", rdma::to_string(state)}},
                 endpoint.state == state ? 1 : 0);
    }
  }
  out.family("kvserver_devices_lost_total", "counter", "Devices that were removed or failed.");
  for (const EndpointFacts& endpoint : facts.endpoints)
    out.sample({{"transport", endpoint.transport}}, endpoint.losses);
}

void add_memory(Exposition& out, const ServerFacts& facts) {
  const StoreStats& store = facts.store;
  gauge(out, "kvserver_memory_limit_bytes", "Limit for index and records (--memory).",
        facts.memory.limit_bytes);
  out.family("kvserver_memory_bytes", "gauge", "Memory allocated so far, by purpose.");
  out.sample({{"kind", "index"}}, facts.memory.index_bytes);
  out.sample({{"kind", "data"}}, store.data_bytes);
  out.sample({{"kind", "message"}}, facts.memory.message_bytes);
  gauge(out, "kvserver_registered_bytes", "Memory that clients may READ, allocated so far.",
        store.memory_bytes);
  gauge(out, "kvserver_data_used_bytes", "Data memory in blocks that hold records.",
        store.data_bytes_used);
  gauge(
      out, "kvserver_longest_free_bytes",
      "Longest free run of data memory, about: a longer value needs others to be moved or dropped.",
      store.longest_free_bytes);
  gauge(out, "kvserver_large_bytes_under_way",
        "Data memory in blocks of large values that are still arriving.",
        store.large_bytes_under_way);
  counter(out, "kvserver_large_values_refused_total",
          "Large values refused because others under way have all memory for them.",
          store.large_refused);
  out.family("kvserver_extents", "gauge", "Memory regions of the store.");
  out.sample({{"kind", "index"}}, facts.memory.index_extents);
  out.sample({{"kind", "data"}}, facts.memory.data_extents);
  counter(out, "kvserver_evicted_records_total", "Records evicted to free memory.", store.evicted);
  counter(out, "kvserver_promoted_records_total",
          "Records read back into memory because a client requested them.", store.promoted);
  counter(out, "kvserver_expired_records_total",
          "Records removed because their time to live ended.", store.expired);
  gauge(out, "kvserver_expiring_records", "Records with a time to live.", store.expiring);
}

void add_index(Exposition& out, const ServerFacts& facts) {
  const StoreStats& store = facts.store;
  gauge(out, "kvserver_memory_records", "Records in memory.", store.records);
  gauge(out, "kvserver_disk_only_records", "Records known to be on disk and not in memory.",
        store.records_on_disk);
  gauge(out, "kvserver_stashed_records", "Records in the stash, which only the server can find.",
        store.stashed_records);
  gauge(out, "kvserver_index_slots", "Slots of the index.", store.index_slots);
  gauge(out, "kvserver_index_used_slots", "Slots of the index that refer to a record.",
        index_slots_used(store));
  gauge(out, "kvserver_index_segments", "Segments of the index in use.", facts.memory.segments);
  gauge(out, "kvserver_index_unused_segments", "Segments ready for splits.",
        facts.memory.unused_segments);
  counter(out, "kvserver_index_splits_total", "Segments split because they were full.",
          store.index_splits);
  out.family("kvserver_puts_stored_total", "counter",
             "Values written, by whether they replaced the old value in place.");
  out.sample({{"place", "same"}}, store.puts_in_place);
  out.sample({{"place", "new"}}, store.puts_moved);
}

void add_queue(Exposition& out, const ServerState& state, const ServerFacts& facts) {
  const LogFacts& log = facts.log;
  gauge(out, "kvserver_queue_bytes", "Size of the writes that are queued and not synced.",
        log.queue_bytes);
  gauge(out, "kvserver_queue_capacity_bytes", "Size of the queue (--queue).",
        log.queue_capacity_bytes);
  gauge(out, "kvserver_queue_unsynced_writes", "Writes handed to the database and not synced.",
        log.applier.unsynced());
  counter(out, "kvserver_queue_full_total", "Writes refused because the queue was full.",
          log.queue_full);
  seconds(out, "kvserver_wal_lag_seconds",
          "Age of the oldest write that is not in the write-ahead log, to 0.1 s.", state.wal_lag_s);
  seconds(out, "kvserver_sync_lag_seconds",
          "Age of the oldest write that is not synced to the disk, to 0.1 s.", state.sync_lag_s);
  gauge(out, "kvserver_last_sequence", "Sequence of the latest write that has begun.",
        log.last_begun);
  gauge(out, "kvserver_wal_sequence", "Sequence up to which all writes are in the write-ahead log.",
        log.wal_mark);
  gauge(out, "kvserver_sync_sequence", "Sequence up to which all writes are synced.",
        log.sync_mark);
  counter(out, "kvserver_batches_total", "Batches written to the database.", log.applier.batches);
  counter(out, "kvserver_syncs_total", "Syncs of the write-ahead log.", log.applier.syncs);
  counter(out, "kvserver_coalesced_writes_total",
          "Writes skipped because their batch held a later write of the same key.",
          log.applier.coalesced);
  out.family("kvserver_durable_writes_total", "counter",
             "Writes that were answered at the requested durability, above memory.");
  out.sample({{"level", "wal"}}, facts.sum(WorkerCounters::kWalWrites));
  out.sample({{"level", "sync"}}, facts.sum(WorkerCounters::kSyncWrites));
}

// `is`: nullptr: memory only.
void add_disk_state(Exposition& out, const DiskState* is, bool hangs) {
  out.family("kvserver_disk_state", "gauge", "1 for the current state of the disk.");
  out.sample({{"state", "none"}}, is == nullptr ? 1 : 0);
  for (const DiskState state : kDiskStates)
    out.sample({{"state", to_string(state)}}, is != nullptr && *is == state && !hangs ? 1 : 0);
  out.sample({{"state", LogFacts::kHung}}, is != nullptr && hangs ? 1 : 0);
}

void add_disk(Exposition& out, const ServerFacts& facts) {
  const LogFacts& log = facts.log;
  add_disk_state(out, log.persistent ? &log.disk : nullptr, log.disk_hangs);
  counter(out, "kvserver_disk_failures_total", "Failures of the disk.", log.applier.failures);
  seconds(out, "kvserver_disk_failing_seconds", "Duration of the current failure of the disk.",
          static_cast<double>(log.disk_failed_ms) / 1e3);
  counter(out, "kvserver_damaged_reads_total", "Reads of the disk that found damage.",
          log.damaged_reads);
  gauge(out, "kvserver_loading", "1 while records of the last run are loaded into memory.",
        facts.store.loading ? 1 : 0);
  gauge(out, "kvserver_loaded_records",
        "Records read by loading since the start, including those that stay on disk.",
        facts.load.loaded);
  gauge(out, "kvserver_estimated_records", "Estimated number of records on disk at the start.",
        facts.load.estimated);
}

void add_one_sided(Exposition& out, const ServerFacts& facts) {
  counter(out, "kvserver_reported_reads_total",
          "Keys that clients found by READ: a sample, reported in their requests.",
          facts.reported_reads());
  gauge(out, "kvserver_one_sided_keys", "Counters that clients currently change by atomics.",
        facts.store.one_sided_counters);
  gauge(out, "kvserver_cells", "Cells for one-sided counters.", facts.store.counter_cells);
  counter(out, "kvserver_cells_taken_total", "Cells used since the start.",
          facts.store.counter_cells_taken);
}

}  // namespace

std::string metrics_text(const ServerState& state, const ServerFacts* facts) {
  Exposition out;
  add_process(out, state, facts);
  if (state.group != nullptr) add_group(out, *state.group);
  if (facts == nullptr) {
    if (state.group != nullptr && state.group->disk)
      add_disk_state(out, &state.group->disk->state, state.group->disk->hangs);
    return out.text();
  }
  add_requests(out, *facts);
  add_latencies(out, *facts);
  add_clients(out, *facts);
  add_endpoints(out, *facts);
  add_memory(out, *facts);
  add_index(out, *facts);
  add_queue(out, state, *facts);
  add_disk(out, *facts);
  add_one_sided(out, *facts);
  return out.text();
}

}  // namespace rkv::server
