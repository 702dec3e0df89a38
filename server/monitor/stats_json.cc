// The reply to a stats request.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/monitor/group_reports.h"
#include "server/monitor/reports.h"
#include "server/monitor/statistics.h"
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

}  // namespace

std::uint64_t index_slots_used(const StoreStats& store) {
  // The two counts are not read at one instant.
  return store.records + store.records_on_disk - std::min(store.records, store.stashed_records);
}

std::string stats_json(const ServerFacts& facts) {
  Json json = {
      {"version", kServerVersion}, {"uptime_ms", facts.uptime_ms}, {"epoch", facts.epoch},
      {"boot", facts.boot},        {"device", facts.device},
  };
  json["endpoints"] = endpoints_json(facts);
  add_statistics(json, Statistic::InJson::kStats, {.facts = &facts, .time = ProcessTime::now()});
  if (facts.group != nullptr) json["group"] = group_json(*facts.group);
  // A device's name comes from outside: bytes that are not valid UTF-8 are replaced; the library
  // would throw otherwise.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rkv::server
