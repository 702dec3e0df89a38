// The table of statistics: a row for each that is one number, one text or one truth. JSON and
// metrics are made of it, and statistics_test.cc compares STATISTICS.md with it. What has a list of
// its own (operations, workers, networks, reasons, a group) is in stats_json.cc, status_json.cc,
// metrics_text.cc and the sources of groups.
//
// From version 1.0 on, names do not change: dashboards and alarms depend on them.
//
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <variant>

#include "common/process_time.h"
#include "server/monitor/exposition.h"
#include "server/monitor/facts.h"
#include "server/monitor/process_facts.h"
#include "server/monitor/reports.h"

namespace rkv::server {

// What a row's value is read from.
struct Observed {
  const ServerFacts* facts = nullptr;  // nullptr: the server does not serve yet
  const ServerState* state = nullptr;  // nullptr: in the answer to a stats request
  ProcessFacts process{};
  ProcessTime time{};
};

struct Statistic {
  // Of STATISTICS.md, in its order.
  enum class Section : std::uint8_t {
    kRequests,
    kClients,
    kMemory,
    kIndex,
    kPersistence,
    kProcess,  // known also while the server does not serve yet
  };
  enum class InJson : std::uint8_t { kNone, kStats, kStatus };  // kStats: also in /status
  enum class Metric : std::uint8_t { kNone, kGauge, kCounter };
  // The monostate: not known now.
  using Value = std::variant<std::monostate, bool, std::uint64_t, double, std::string_view>;

  Section section;
  InJson json;
  std::string_view name;  // in JSON
  Metric metric;
  std::string_view family;          // name of the metric
  std::string_view label;           // of the metric: NAME=VALUE, or none
  std::string_view help;            // one sentence
  Value (*value)(const Observed&);  // needs `facts` but in kProcess; `state` if not of kStats
};

std::span<const Statistic> statistics();

// Adds the rows of kStats, or of kStatus, by their names in JSON. null: not known now.
void add_statistics(nlohmann::ordered_json& json, Statistic::InJson which, const Observed& seen);
// Adds the families of all rows that are known now; without `seen.facts` those of the process.
void add_statistics(Exposition& out, const Observed& seen);

// "process", ...: the section's title in STATISTICS.md.
std::string_view to_string(Statistic::Section section);

}  // namespace rkv::server
