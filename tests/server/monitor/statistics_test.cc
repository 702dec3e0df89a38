// The table of statistics, beside its page.
#include "server/monitor/statistics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace rkv::server {
namespace {

std::string in_backquotes(std::string_view text) {
  return "`" + std::string(text) + "`";
}

std::string metric_of(const Statistic& row) {
  constexpr std::string_view kPrefix = "kvserver_";
  const bool ours = row.family.starts_with(kPrefix);
  std::string name(ours ? row.family.substr(kPrefix.size()) : row.family);
  if (const auto equals = row.label.find('='); equals != std::string_view::npos) {
    name += "{" + std::string(row.label.substr(0, equals)) + "=\"" +
            std::string(row.label.substr(equals + 1)) + "\"}";
  }
  return name;
}

// The rows of STATISTICS.md.
std::string table() {
  std::string all;
  const Statistic* before = nullptr;
  for (const Statistic& row : statistics()) {
    if (before == nullptr || before->section != row.section)
      all += "| **" + std::string(to_string(row.section)) + "** | | |\n";
    before = &row;
    const std::string json =
        row.json == Statistic::InJson::kNone
            ? ""
            : in_backquotes(row.name) + (row.json == Statistic::InJson::kStatus ? "*" : "") + " ";
    const std::string metric =
        row.metric == Statistic::Metric::kNone ? "" : in_backquotes(metric_of(row)) + " ";
    all += "| " + json + "| " + metric + "| " + std::string(row.help) + " |\n";
  }
  return all;
}

TEST(Statistics, StandOnTheirPageAsInTheTable) {
  std::ifstream file("server/STATISTICS.md");
  ASSERT_TRUE(file) << "run from the repository's root";
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(page.find("\n|---|---|---|\n" + table() + "\n"), std::string::npos)
      << "the table of server/STATISTICS.md must be:\n"
      << table();
}

TEST(Statistics, HaveNamesOfTheirOwn) {
  std::set<std::string> json;
  std::set<std::string> metrics;
  std::set<std::string_view> families;
  std::string_view family;
  for (const Statistic& row : statistics()) {
    EXPECT_TRUE(row.help.ends_with('.')) << row.name << row.family;
    EXPECT_EQ(row.json == Statistic::InJson::kNone, row.name.empty()) << row.name << row.family;
    EXPECT_EQ(row.metric == Statistic::Metric::kNone, row.family.empty()) << row.name;
    if (!row.name.empty()) {
      EXPECT_TRUE(json.insert(std::string(row.name)).second) << row.name;
    }
    if (row.family.empty()) continue;
    EXPECT_TRUE(metrics.insert(metric_of(row)).second) << row.family;
    EXPECT_EQ(row.metric == Statistic::Metric::kCounter, row.family.ends_with("_total"))
        << row.family << ": Prometheus' names of counters end so";
    // The rows of one family follow one another.
    if (row.family != family) {
      EXPECT_TRUE(families.insert(row.family).second) << row.family;
    }
    family = row.family;
  }
}

}  // namespace
}  // namespace rkv::server
