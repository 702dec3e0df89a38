#include "bench/kvbench/report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace rkv::kvbench {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSoftRoceNote = "SoftRoCE: not representative of hardware";
constexpr double kAlwaysShown[] = {50, 90, 95, 99, 99.9, 99.99};  // in CSV and JSON

// Formats a double as Java does: always with a decimal point.
std::string real(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// YCSB's ordinals: 50th, 1st, 99.9.
std::string ordinal(double percent) {
  if (percent != std::floor(percent)) return fmt::format("{}", percent);
  const auto whole = static_cast<int>(percent);
  const bool teens = whole % 100 >= 11 && whole % 100 <= 13;
  constexpr const char* kSuffixes[] = {"th", "st", "nd", "rd"};
  return fmt::format("{}{}", whole, teens || whole % 10 > 3 ? "th" : kSuffixes[whole % 10]);
}

double per(std::uint64_t amount, std::uint64_t count) {
  return count == 0 ? 0 : static_cast<double>(amount) / static_cast<double>(count);
}

std::uint64_t runtime_ms(const Results& results) {
  return static_cast<std::uint64_t>(results.seconds * 1e3);
}

double throughput(const Results& results) {
  return results.seconds > 0 ? static_cast<double>(results.operations) / results.seconds : 0;
}

// Each READ, atomic and request counts as a round trip; pipelined ones overlap in time.
std::uint64_t round_trips(const ClientStats& client) {
  return client.rdma_reads + client.map_reads + client.atomics + client.two_sided_requests;
}

void add_latency(std::vector<Metric>& out, const Options& options, const Row& row) {
  const HdrHistogram& latency = row.latency;
  const auto add = [&](std::string name, std::string value) {
    out.push_back({row.name, std::move(name), std::move(value)});
  };
  for (const std::uint64_t unit : {std::uint64_t{1000}, std::uint64_t{1}}) {
    const char* shown = unit == 1 ? "ns" : "us";
    add(fmt::format("AverageLatency({})", shown), real(latency.mean() / static_cast<double>(unit)));
    add(fmt::format("MinLatency({})", shown), fmt::format("{}", latency.min() / unit));
    add(fmt::format("MaxLatency({})", shown), fmt::format("{}", latency.max() / unit));
    for (const double percent : options.percentiles) {
      add(fmt::format("{}PercentileLatency({})", ordinal(percent), shown),
          fmt::format("{}", latency.percentile(percent) / unit));
    }
    if (unit == 1) continue;
    for (std::size_t i = 0; i < kOutcomes; ++i) {
      if (row.outcomes[i] == 0) continue;
      add(fmt::format("Return={}", name_of(static_cast<Outcome>(i))),
          fmt::format("{}", row.outcomes[i]));
    }
  }
  if (!options.verbose_histogram) return;
  for (std::size_t i = 0; i < HdrBuckets::kCount; ++i) {
    if (latency.count_at(i) == 0) continue;
    add(fmt::format("{}", HdrBuckets::highest(i) / 1000),
        real(static_cast<double>(latency.count_at(i))));
  }
}

// ------------------------------------------------------------------------------------- forms

std::string text(const Options& options, const Results& results, const RunsOn& on) {
  std::string out;
  if (on.is_softroce) out += fmt::format("{}\n", kSoftRoceNote);
  for (const Metric& metric : metrics(options, results))
    out += fmt::format("[{}], {}, {}\n", metric.section, metric.name, metric.value);
  return out;
}

// YCSB's exporters: JSON objects in sequence, or in an array.
std::string ycsb_json(const Options& options, const Results& results, bool array) {
  std::string out = array ? "[" : "";
  const char* between = "";
  for (const Metric& metric : metrics(options, results)) {
    out += fmt::format(R"({}{{"metric": "{}", "measurement": "{}", "value": {}}})", between,
                       metric.section, metric.name, metric.value);
    between = array ? ",\n " : "\n";
  }
  return out + (array ? "]\n" : "\n");
}

std::string csv(const Results& results, const RunsOn& on) {
  std::string out = on.is_softroce ? fmt::format("# {}\n", kSoftRoceNote) : "";
  out +=
      "operation,count,ok,failed,ops_per_s,average_ns,min_ns,p50_ns,p90_ns,p95_ns,p99_ns,p99.9_ns,"
      "p99.99_ns,max_ns,complete\n";
  for (const Row& row : results.rows) {
    std::uint64_t failed = 0;
    for (std::size_t i = 1; i < kOutcomes; ++i)
      failed += row.outcomes[i];
    const HdrHistogram& latency = row.latency;
    out += fmt::format("{},{},{},{},{:.3f},{:.1f},{}", row.name, latency.count(), row.outcomes[0],
                       failed, static_cast<double>(latency.count()) / results.seconds,
                       latency.mean(), latency.min());
    for (const double percent : kAlwaysShown)
      out += fmt::format(",{}", latency.percentile(percent));
    out += fmt::format(",{},{}\n", latency.max(), results.complete ? "true" : "false");
  }
  return out;
}

Json row_json(const Options& options, const Row& row) {
  const HdrHistogram& latency = row.latency;
  Json percentiles = Json::object();
  for (const double percent : kAlwaysShown)
    percentiles[fmt::format("{}", percent)] = latency.percentile(percent);
  for (const double percent : options.percentiles)
    percentiles[fmt::format("{}", percent)] = latency.percentile(percent);
  Json outcomes = Json::object();
  for (std::size_t i = 0; i < kOutcomes; ++i) {
    if (row.outcomes[i] != 0) outcomes[name_of(static_cast<Outcome>(i))] = row.outcomes[i];
  }
  return {{"operations", latency.count()},
          {"returns", outcomes},
          {"latency_ns",
           {{"average", latency.mean()},
            {"min", latency.min()},
            {"max", latency.max()},
            {"percentiles", percentiles}}},
          {"histogram", latency.encode()}};
}

Json client_json(const Results& results) {
  const ClientStats& client = results.client;
  const std::uint64_t operations = results.operations;
  return {
      {"gets", client.gets},
      {"one_sided_gets", client.one_sided_gets},
      {"two_sided_gets", client.two_sided_gets},
      {"missing", client.missing},
      {"reads", client.rdma_reads},
      {"map_reads", client.map_reads},
      {"requests", client.two_sided_requests},
      {"tears", client.tears_detected},
      {"retries", client.retries},
      {"pins", client.pins},
      {"cache_hits", client.cache_hits},
      {"cache_misses", client.cache_misses},
      {"busy_answers", client.busy_answers},
      {"reconnects", client.reconnects},
      {"value_bytes_read", results.counters.value_bytes_read},
      {"value_bytes_written", results.counters.value_bytes_written},
      {"records_scanned", results.counters.records_scanned},
      {"update_conflicts", results.counters.update_conflicts},
      {"reads_per_get", per(client.rdma_reads, client.gets)},
      {"cache_hits_per_get", per(client.cache_hits, client.gets)},
      {"retries_per_get", per(client.retries, client.gets)},
      {"tears_per_get", per(client.tears_detected, client.gets)},
      {"round_trips_per_operation", per(round_trips(client), operations)},
      {"value_bytes_per_operation",
       per(results.counters.value_bytes_read + results.counters.value_bytes_written, operations)},
      {"user_cpu_ns_per_operation", per(results.client_time.user_us * 1000, operations)},
      {"system_cpu_ns_per_operation", per(results.client_time.system_us * 1000, operations)}};
}

Json server_json(const Results& results) {
  Json json = {
      {"user_cpu_ns_per_operation", per(results.server_time.user_us * 1000, results.operations)},
      {"system_cpu_ns_per_operation",
       per(results.server_time.system_us * 1000, results.operations)}};
  const auto stats = Json::parse(results.server_stats, nullptr, false);
  json["stats"] = stats.is_object() ? stats : Json();
  return json;
}

Json environment_json(const Options& options, const Results& results, const RunsOn& on,
                      const std::vector<std::string>& command) {
  constexpr const char* kPolling[] = {"adaptive", "busy", "event"};
  return {{"transport", results.transport},
          {"device", on.device.empty() ? Json() : Json(on.device)},
          {"provider", on.provider.empty() ? Json() : Json(on.provider)},
          {"mtu_bytes", on.mtu_bytes == 0 ? Json() : Json(on.mtu_bytes)},
          {"kernel", on.kernel},
          {"processor", on.processor},
          {"cores", on.cores},
          {"poll", kPolling[static_cast<std::size_t>(options.client.polling)]},
          {"cache_bytes", options.client.cache_bytes},
          {"git_revision", git_revision()},
          {"command", command}};
}

std::string json(const Options& options, const Results& results, const RunsOn& on,
                 const std::vector<std::string>& command) {
  Json out = Json::object();
  if (on.is_softroce) out["note"] = kSoftRoceNote;
  out["complete"] = results.complete;
  if (!results.complete) out["why_partial"] = results.why;
  out["phase"] = options.phase == Phase::kLoad ? "load" : "transactions";
  out["environment"] = environment_json(options, results, on, command);
  Json properties = Json::object();
  for (const auto& [name, property] : options.properties.all())
    properties[name] = property.value;
  out["properties"] = properties;
  out["settings"] = {
      {"threads", results.threads},
      {"in_flight", options.in_flight},
      {"target", options.target},
      {"update", options.plain_updates ? "plain" : "atomic"},
      {"durability",
       options.durability == Durability::kDefault ? "default" : to_string(options.durability)},
      {"seed", options.seed}};
  out["overall"] = {{"operations", results.operations},
                    {"operations_not_done", results.missing},
                    {"failed", results.failed},
                    {"runtime_ms", results.seconds * 1e3},
                    {"throughput_per_s", throughput(results)}};
  Json rows = Json::object();
  for (const Row& row : results.rows)
    rows[row.name] = row_json(options, row);
  out["operations"] = rows;
  out["client"] = client_json(results);
  out["server"] = server_json(results);
  // Text from a property file may not be valid UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::vector<Metric> metrics(const Options& options, const Results& results) {
  std::vector<Metric> out;
  const auto overall = [&](const char* name, std::string value) {
    out.push_back({"OVERALL", name, std::move(value)});
  };
  if (!results.complete) {
    overall("PartialResults", "1");
    overall("OperationsNotDone", fmt::format("{}", results.missing));
  }
  overall("RunTime(ms)", fmt::format("{}", runtime_ms(results)));
  overall("Throughput(ops/sec)", real(throughput(results)));
  for (const Row& row : results.rows) {
    out.push_back({row.name, "Operations", fmt::format("{}", row.latency.count())});
    add_latency(out, options, row);
  }
  const auto client = [&](const char* name, double value) {
    out.push_back({"CLIENT", name, real(value)});
  };
  const ClientStats& stats = results.client;
  client("ReadsPerGet", per(stats.rdma_reads, stats.gets));
  client("CacheHitsPerGet", per(stats.cache_hits, stats.gets));
  client("RoundTripsPerOperation", per(round_trips(stats), results.operations));
  client("Retries", static_cast<double>(stats.retries));
  client("TearsDetected", static_cast<double>(stats.tears_detected));
  client("UpdateConflicts", static_cast<double>(results.counters.update_conflicts));
  client("UserCpuPerOperation(ns)", per(results.client_time.user_us * 1000, results.operations));
  out.push_back({"SERVER", "UserCpuPerOperation(ns)",
                 real(per(results.server_time.user_us * 1000, results.operations))});
  return out;
}

std::string report(const Options& options, const Results& results, const RunsOn& on,
                   const std::vector<std::string>& command) {
  switch (options.form) {
    case Form::kText:
      return text(options, results, on);
    case Form::kCsv:
      return csv(results, on);
    case Form::kYcsbJson:
      return ycsb_json(options, results, false);
    case Form::kYcsbJsonArray:
      return ycsb_json(options, results, true);
    case Form::kJson:
      break;
  }
  return json(options, results, on, command);
}

}  // namespace rkv::kvbench
