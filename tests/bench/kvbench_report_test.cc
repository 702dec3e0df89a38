// Results as text, CSV and JSON; the status line.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/kvbench/report.h"
#include "bench/kvbench/status_line.h"

namespace rkv::kvbench {
namespace {

Options options() {
  Options made;
  made.percentiles = {50, 95, 99, 99.9};
  return made;
}

Results results() {
  Results made;
  made.complete = true;
  made.operations = 4;
  made.seconds = 0.5;
  made.threads = 1;
  Row row{.name = "READ", .latency = {}, .outcomes = {}};
  for (const std::uint64_t ns : {900, 1500, 1900, 250'000})
    row.latency.record(ns);
  row.outcomes[0] = 3;
  row.outcomes[static_cast<std::size_t>(Outcome::kNotFound)] = 1;
  made.failed = 1;
  made.rows.push_back(std::move(row));
  made.client.gets = 4;
  made.client.rdma_reads = 6;
  made.transport = "shm: here";
  made.server_stats = R"({"puts": 7})";
  return made;
}

TEST(Report, TextHasYcsbsLines) {
  const std::string text = report(options(), results(), {}, {});
  EXPECT_TRUE(
      text.starts_with("[OVERALL], RunTime(ms), 500\n"
                       "[OVERALL], Throughput(ops/sec), 8.0\n"
                       "[READ], Operations, 4\n"
                       "[READ], AverageLatency(us), 63.587"))
      << text;
  EXPECT_NE(text.find("[READ], MinLatency(us), 0\n"
                      "[READ], MaxLatency(us), 250\n"
                      "[READ], 50thPercentileLatency(us), 1\n"
                      "[READ], 95thPercentileLatency(us), 250\n"
                      "[READ], 99thPercentileLatency(us), 250\n"
                      "[READ], 99.9PercentileLatency(us), 250\n"
                      "[READ], Return=OK, 3\n"
                      "[READ], Return=NOT_FOUND, 1\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("[READ], 50thPercentileLatency(ns), 1500\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[CLIENT], ReadsPerGet, 1.5\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("Partial"), std::string::npos);
}

// Every line that a program takes apart at its commas has three columns, the last a number.
TEST(Report, EveryLineOfTextIsSectionNameNumber) {
  Results partial = results();
  partial.complete = false;
  partial.why = "the server is gone";
  partial.missing = 96;
  const std::string text = report(options(), partial, {}, {});
  EXPECT_TRUE(
      text.starts_with("[OVERALL], PartialResults, 1\n"
                       "[OVERALL], OperationsNotDone, 96\n"))
      << text;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    EXPECT_TRUE(line.starts_with("["));
    const std::size_t comma = line.rfind(", ");
    ASSERT_NE(comma, std::string::npos) << line;
    std::size_t used = 0;
    std::stod(line.substr(comma + 2), &used);
    EXPECT_EQ(used, line.size() - comma - 2) << line;
    begin = end + 1;
  }
}

TEST(Report, SoftRoceSaysSoInItsHead) {
  const RunsOn on{.device = "rxe0", .provider = "rdma_rxe", .is_softroce = true};
  EXPECT_TRUE(report(options(), results(), on, {})
                  .starts_with("SoftRoCE: not representative of hardware\n"));
  Options as_json = options();
  as_json.form = Form::kJson;
  EXPECT_EQ(nlohmann::json::parse(report(as_json, results(), on, {})).at("note"),
            "SoftRoCE: not representative of hardware");
  Options as_csv = options();
  as_csv.form = Form::kCsv;
  EXPECT_TRUE(report(as_csv, results(), on, {})
                  .starts_with("# SoftRoCE: not representative of hardware\noperation,count,"));
}

TEST(Report, JsonHasEverything) {
  Options as_json = options();
  as_json.form = Form::kJson;
  as_json.properties.set("workload", "site", "-p");
  const auto json =
      nlohmann::json::parse(report(as_json, results(), {.kernel = "Linux 6"}, {"kvbench", "-t"}));
  EXPECT_EQ(json.at("complete"), true);
  EXPECT_EQ(json.at("overall").at("throughput_per_s"), 8.0);
  EXPECT_EQ(json.at("operations").at("READ").at("operations"), 4);
  EXPECT_EQ(json.at("operations").at("READ").at("returns").at("NOT_FOUND"), 1);
  EXPECT_EQ(json.at("operations").at("READ").at("latency_ns").at("percentiles").at("50"), 1500);
  EXPECT_EQ(json.at("client").at("reads_per_get"), 1.5);
  EXPECT_EQ(json.at("server").at("stats").at("puts"), 7);
  EXPECT_EQ(json.at("environment").at("kernel"), "Linux 6");
  EXPECT_EQ(json.at("environment").at("transport"), "shm: here");
  EXPECT_EQ(json.at("environment").at("command").at(1), "-t");
  EXPECT_FALSE(json.at("environment").at("git_revision").get<std::string>().empty());
  EXPECT_EQ(json.at("properties").at("workload"), "site");
  const std::vector<std::pair<const char*, std::vector<const char*>>> wanted = {
      {"environment", {"device", "provider", "mtu_bytes", "processor", "cores", "poll"}},
      {"settings", {"threads", "in_flight", "target", "update", "durability", "seed"}},
      {"client",
       {"gets", "reads", "requests", "retries", "tears", "cache_hits", "value_bytes_read",
        "value_bytes_written", "cache_hits_per_get", "round_trips_per_operation"}},
      {"server", {"user_cpu_ns_per_operation", "system_cpu_ns_per_operation"}}};
  for (const auto& [group, names] : wanted) {
    for (const char* name : names)
      EXPECT_TRUE(json.at(group).contains(name)) << group << " " << name;
  }
}

TEST(Report, CsvHasALineForEachRow) {
  Options as_csv = options();
  as_csv.form = Form::kCsv;
  EXPECT_EQ(report(as_csv, results(), {}, {}),
            "operation,count,ok,failed,ops_per_s,average_ns,min_ns,p50_ns,p90_ns,p95_ns,p99_ns,"
            "p99.9_ns,p99.99_ns,max_ns,complete\n"
            "READ,4,3,1,8.000,63587.0,900,1500,250111,250111,250111,250111,250111,250111,true\n");
}

TEST(Report, YcsbsJsonExportersAreJson) {
  Options as_json = options();
  as_json.form = Form::kYcsbJsonArray;
  const auto array = nlohmann::json::parse(report(as_json, results(), {}, {}));
  EXPECT_EQ(array.at(0).at("metric"), "OVERALL");
  EXPECT_EQ(array.at(0).at("measurement"), "RunTime(ms)");
  EXPECT_EQ(array.at(0).at("value"), 500);
  as_json.form = Form::kYcsbJson;
  const std::string lines = report(as_json, results(), {}, {});
  EXPECT_EQ(nlohmann::json::parse(lines.substr(0, lines.find('\n'))).at("value"), 500);
}

TEST(Report, ABucketOfTheHistogramIsAMicrosecondsCount) {
  Options verbose = options();
  verbose.verbose_histogram = true;
  const std::string text = report(verbose, results(), {}, {});
  EXPECT_NE(text.find("[READ], 1, 1.0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[READ], 250, 1.0\n"), std::string::npos) << text;
}

TEST(StatusLine, IsYcsbs) {
  Row row{.name = "READ", .latency = {}, .outcomes = {}};
  row.latency.record(2'000, 100);
  const StatusLine status("label ", 0);
  EXPECT_EQ(status.line(10'000'000'000, 100, 1000, {row}, "2026-01-02 03:04:05:006"),
            "label 2026-01-02 03:04:05:006 10 sec: 100 operations; 10 current ops/sec; est "
            "completion in 1 minute [READ: Count=100, Max=2, Min=2, Avg=2, 50=2, 90=2, 99=2, "
            "99.9=2, 99.99=2] ");
  EXPECT_EQ(status.line(0, 0, 1000, {}, "now"), "label now 0 sec: 0 operations; ");
}

}  // namespace
}  // namespace rkv::kvbench
