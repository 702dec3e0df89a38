// The answer of /metrics. From version 1.0 on, names do not change: dashboards and alarms depend on
// them.
#include "server/monitor/exposition.h"
#include "server/monitor/group_reports.h"
#include "server/monitor/reports.h"
#include "server/monitor/statistics.h"
#include "server/program/options.h"

namespace rkv::server {

namespace {

constexpr double kNanosecond = 1e-9;

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
  out.family("kvserver_build_info", "gauge", "Always 1; the label is the version.");
  out.sample({{"version", kServerVersion}}, 1);
  out.one("kvserver_ready", "gauge", "1 while clients are served, or as a backup in sync.",
          is_ready(state, facts) ? 1 : 0);
  out.one("kvserver_healthy", "gauge", "1 while neither the main thread nor a worker is stuck.",
          state.stuck.empty() ? 1 : 0);
  out.one("process_start_time_seconds", "gauge", "Start time of the process, as Unix time.",
          static_cast<double>(state.unix_ms_at_start) / 1e3);
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
  add_endings(out, facts);
  by_worker(out, facts, "kvserver_turns_total", "counter", "Turns of a worker's loop.",
            [](const WorkerFacts& worker) { return worker.counters->get(WorkerCounters::kTurns); });
  by_worker(out, facts, "kvserver_requests_waiting", "gauge",
            "Requests taken from the receive queue and not answered yet.", requests_waiting);
  by_worker(out, facts, "kvserver_credits", "gauge",
            "Requests that connected clients may have in flight.", credits_granted);
  by_worker(out, facts, "kvserver_receive_buffers", "gauge", "Buffers of the receive queue.",
            [](const WorkerFacts& worker) { return worker.room->receives; });
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

// `is`: nullptr: memory only.
void add_disk_state(Exposition& out, const DiskState* is, bool hangs) {
  out.family("kvserver_disk_state", "gauge", "1 for the current state of the disk.");
  out.sample({{"state", "none"}}, is == nullptr ? 1 : 0);
  for (const DiskState state : kDiskStates)
    out.sample({{"state", to_string(state)}}, is != nullptr && *is == state && !hangs ? 1 : 0);
  out.sample({{"state", LogFacts::kHung}}, is != nullptr && hangs ? 1 : 0);
}

}  // namespace

std::string metrics_text(const ServerState& state, const ServerFacts* facts) {
  Exposition out;
  add_process(out, state, facts);
  add_statistics(out, {.facts = facts, .state = &state, .process = ProcessFacts::now()});
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
  const LogFacts& log = facts->log;
  add_disk_state(out, log.persistent ? &log.disk : nullptr, log.disk_hangs);
  return out.text();
}

}  // namespace rkv::server
