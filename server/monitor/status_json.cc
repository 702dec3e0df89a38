// The answer of /status: the statistics of kvclient stats, and values that only repeated requests
// can use.
#include <nlohmann/json.hpp>

#include "server/monitor/group_reports.h"
#include "server/monitor/reports.h"
#include "server/monitor/statistics.h"
#include "server/program/options.h"

namespace rkv::server {

namespace {

using Json = nlohmann::ordered_json;

Json statuses_json(const ServerFacts& facts, Opcode opcode) {
  Json statuses = Json::object();
  for (std::size_t status = 0; status < kStatuses; ++status) {
    const std::uint64_t count = facts.answers(opcode, status);
    if (count != 0 || status == 0) statuses[std::string(status_name(status))] = count;
  }
  return statuses;
}

// Bucket counts, so that the latencies between two requests can be computed from their difference.
Json latency_json(const ServerFacts& facts, Opcode opcode) {
  const TimingSum sum = facts.timings(opcode);
  Json buckets = Json::array();
  for (std::size_t i = 0; i < kTimingBuckets; ++i) {
    if (sum.buckets[i] != 0) buckets.push_back({TimingBuckets::highest(i) + 1, sum.buckets[i]});
  }
  return {
      {"count", sum.count},
      {"sum_ns", sum.sum_ns},
      {"p50_ns", sum.percentile(50)},
      {"p99_ns", sum.percentile(99)},
      {"p999_ns", sum.percentile(99.9)},
      {"buckets_ns", buckets},
  };
}

Json operations_json(const ServerFacts& facts) {
  Json operations = Json::object();
  for (std::size_t number = 1; number < kOperations; ++number) {
    const auto opcode = static_cast<Opcode>(number);
    if (opcode == Opcode::kLong) continue;  // counted under the operation it carries
    operations[std::string(to_string(opcode))] = {
        {"answers", statuses_json(facts, opcode)},
        {"latency", latency_json(facts, opcode)},
    };
  }
  return operations;
}

Json workers_json(const ServerFacts& facts) {
  Json workers = Json::array();
  for (const WorkerFacts& worker : facts.workers) {
    workers.push_back({{"transport", worker.transport},
                       {"worker", worker.number},
                       {"clients", worker.clients},
                       {"turns", worker.counters->get(WorkerCounters::kTurns)},
                       {"waiting_requests", requests_waiting(worker)},
                       {"receive_buffers", worker.room->receives},
                       {"credits", credits_granted(worker)}});
  }
  return workers;
}

Json reasons_json(const ServerFacts& facts) {
  Json dropped = Json::object();
  for (std::size_t i = 0; i < kDropReasons; ++i) {
    const auto reason = static_cast<DropReason>(i);
    dropped[std::string(name_of(reason))] = facts.drops(reason);
  }
  Json refused = Json::object();
  for (std::size_t i = 0; i < kRefusalReasons; ++i)
    refused[std::string(name_of(static_cast<RefusalReason>(i)))] = facts.refusals[i];
  return {{"connections_dropped_for", dropped}, {"connections_refused_for", refused}};
}

}  // namespace

const char* to_string(ServerState::Phase phase) {
  switch (phase) {
    case ServerState::kStarting:
      return "starting";
    case ServerState::kReady:
      return "ready";
    case ServerState::kStopping:
      return "stopping";
  }
  return "unknown";
}

bool is_ready(const ServerState& state, const ServerFacts* facts) {
  if (state.phase == ServerState::kStopping) return false;
  const GroupStatus* const group = state.group.get();
  if (group != nullptr && group->role != GroupStatus::Role::kPrimary) return is_in_place(*group);
  if (state.phase == ServerState::kStarting) return false;
  return (group == nullptr || is_in_place(*group)) && facts != nullptr && has_way_in(*facts);
}

// Approximate: a request is counted at arrival and again at its answer, and the two are not read
// atomically.
std::uint64_t requests_waiting(const WorkerFacts& worker) {
  std::uint64_t over = worker.counters->get(WorkerCounters::kAbandoned);
  for (std::size_t opcode = 1; opcode < kOperations; ++opcode) {
    for (std::size_t status = 0; status < kStatuses; ++status)
      over += worker.counters->answers(static_cast<Opcode>(opcode), status);
  }
  const std::uint64_t received = worker.counters->get(WorkerCounters::kReceived) +
                                 worker.counters->get(WorkerCounters::kPacked);
  return received > over ? received - over : 0;
}

std::uint64_t credits_granted(const WorkerFacts& worker) {
  const std::uint64_t returned = worker.counters->get(WorkerCounters::kReturned);
  const std::uint64_t granted = worker.counters->get(WorkerCounters::kGranted);
  return granted > returned ? granted - returned : 0;
}

std::string status_json(const ServerState& state, const ServerFacts* facts) {
  Json json = {{"state", to_string(state.phase)},
               {"ready", is_ready(state, facts)},
               {"doing", state.doing},
               {"stuck", state.stuck},
               {"start_time_unix_ms", state.unix_ms_at_start},
               {"version", kServerVersion}};
  if (facts != nullptr) {
    json.update(Json::parse(stats_json(*facts)));
    add_statistics(json, Statistic::InJson::kStatus,
                   {.facts = facts, .state = &state, .process = ProcessFacts::now()});
    json["workers"] = workers_json(*facts);
    json["operations"] = operations_json(*facts);
    json.update(reasons_json(*facts));
  } else if (state.group != nullptr) {
    json["group"] = group_json(*state.group);
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rkv::server
