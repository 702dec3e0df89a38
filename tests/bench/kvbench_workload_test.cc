// Workloads and the command line: YCSB's defaults, its files, and mistakes in one sentence.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "bench/kvbench/options.h"
#include "bench/kvbench/workload.h"
#include "client/engine/option_table.h"
#include "tests/system/world.h"

namespace rkv::kvbench {
namespace {

const std::string kHead =
    "workload=site.ycsb.workloads.CoreWorkload\nrecordcount=1000\noperationcount=1000\n";

OrSentence<WorkloadSettings> settings(const std::string& lines,
                                      Phase phase = Phase::kTransactions) {
  Properties properties;
  const auto read = properties.read_text(lines, "w");
  EXPECT_TRUE(read) << read.error();
  return read_workload(properties, phase);
}

std::string mistake(const std::string& lines) {
  const auto read = settings(kHead + lines);
  return read ? "none" : read.error();
}

TEST(Workload, DefaultsAreThoseOfYcsb) {
  const auto read = settings(kHead);
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(read->field_count, 10U);
  EXPECT_EQ(std::get<Constant>(read->field_length).value, 100U);
  EXPECT_TRUE(read->read_all_fields);
  EXPECT_FALSE(read->write_all_fields);
  EXPECT_EQ(read->proportions, (std::array<double, kOperations>{0.95, 0.05, 0, 0, 0}));
  EXPECT_EQ(read->distribution, RequestDistribution::kUniform);
  EXPECT_EQ(read->keys.zero_padding, 1U);
  EXPECT_FALSE(read->keys.ordered);
  EXPECT_EQ(read->hotspot_data, 0.2);
  EXPECT_EQ(read->hotspot_operations, 0.8);
  EXPECT_EQ(read->insert_count, 1000U);
}

TEST(Workload, TheOlderNameIsKnown) {
  EXPECT_TRUE(
      settings("workload=com.yahoo.ycsb.workloads.CoreWorkload\nrecordcount=1\n"
               "operationcount=1\n"));
}

struct Official {
  char letter;
  std::array<double, kOperations> proportions;  // read, update, insert, scan, read-modify-write
  RequestDistribution distribution;
};
class OfficialFile : public testing::TestWithParam<Official> {};
TEST_P(OfficialFile, HasYcsbsProperties) {
  Properties properties;
  const auto done =
      properties.read_file(fmt::format("bench/kvbench/workloads/workload{}", GetParam().letter));
  ASSERT_TRUE(done) << done.error();
  const auto read = read_workload(properties, Phase::kTransactions);
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(read->record_count, 1000U);
  EXPECT_EQ(read->operation_count, 1000U);
  EXPECT_EQ(read->proportions, GetParam().proportions);
  EXPECT_EQ(read->distribution, GetParam().distribution);
  EXPECT_TRUE(read->read_all_fields);
  EXPECT_EQ(properties.text("maxscanlength", ""), GetParam().letter == 'e' ? "100" : "");
  for (const auto& [name, property] : properties.all())
    EXPECT_TRUE(is_known_property(name)) << name;
}
using enum RequestDistribution;
INSTANTIATE_TEST_SUITE_P(Workload, OfficialFile,
                         testing::Values(Official{'a', {0.5, 0.5, 0, 0, 0}, kZipfian},
                                         Official{'b', {0.95, 0.05, 0, 0, 0}, kZipfian},
                                         Official{'c', {1, 0, 0, 0, 0}, kZipfian},
                                         Official{'d', {0.95, 0, 0.05, 0, 0}, kLatest},
                                         Official{'e', {0, 0, 0.05, 0.95, 0}, kZipfian},
                                         Official{'f', {0.5, 0, 0, 0, 0.5}, kZipfian}));

TEST(Workload, MistakesNameThePropertyAndItsPlace) {
  EXPECT_EQ(
      mistake("readproportion=0.5\n"),
      "w:4:16: the proportions add up to 0.55, not to 1: readproportion 0.5, updateproportion "
      "0.05 (the default), insertproportion 0, scanproportion 0, readmodifywriteproportion 0");
  EXPECT_EQ(mistake("requestdistribution=zipf\n"),
            "w:4:21: unknown requestdistribution 'zipf': uniform, zipfian, latest, hotspot, "
            "sequential and exponential are supported");
  EXPECT_EQ(mistake("recordcount=0\n"), "w:4:13: recordcount is 0: give the number of records");
  EXPECT_EQ(mistake("recordcount=many\n"),
            "w:4:13: recordcount needs a whole number from 0 to 281474976710656, not 'many'");
  EXPECT_EQ(mistake("operationcount=0\n"),
            "w:4:16: operationcount is 0: give the number of operations, or a time limit in "
            "seconds by maxexecutiontime");
  EXPECT_EQ(mistake("workload=site.ycsb.workloads.TimeSeriesWorkload\n"),
            "w:4:10: unknown workload 'site.ycsb.workloads.TimeSeriesWorkload'; "
            "site.ycsb.workloads.CoreWorkload is supported");
  EXPECT_EQ(mistake("scanlengthdistribution=latest\n"),
            "w:4:24: unknown scanlengthdistribution 'latest': uniform and zipfian are supported");
  EXPECT_EQ(mistake("fieldlengthdistribution=normal\n"),
            "w:4:25: unknown fieldlengthdistribution 'normal': constant, uniform, zipfian and "
            "histogram are supported");
  EXPECT_EQ(mistake("insertorder=random\n"),
            "w:4:13: insertorder needs hashed or ordered, not 'random'");
  EXPECT_EQ(mistake("dataintegrity=true\nfieldlengthdistribution=uniform\n"),
            "w:4:15: dataintegrity=true needs fieldlengthdistribution=constant");
  EXPECT_EQ(mistake("fieldcount=16384\nfieldlength=4096\n"),
            "w:5:13: 16384 fields of up to 4096 bytes exceed the longest value, 16 MiB");
  EXPECT_EQ(mistake("minscanlength=10\nmaxscanlength=5\n"),
            "w:4:15: minscanlength is above maxscanlength");
  EXPECT_EQ(mistake("insertstart=900\ninsertcount=200\n"),
            "w:5:13: insertstart and insertcount together must not exceed recordcount");
}

TEST(Workload, WhatIsMissingIsNamedWithWhatMayBeItMistyped) {
  const std::string name = "workload=site.ycsb.workloads.CoreWorkload\n";
  EXPECT_EQ(settings("recordcount=1\n").error(),
            "the property workload is missing: give a file, such as -P workloads/workloada");
  EXPECT_EQ(settings("this is prose\n").error(),
            "the property workload is missing: give a file, such as -P workloads/workloada (w:1:6: "
            "unknown property 'this')");
  EXPECT_EQ(settings(name + "recordscount=9\n").error(),
            "the property recordcount is missing: give the number of records (w:2:14: unknown "
            "property 'recordscount')");
  EXPECT_EQ(settings(name + "recordcount=9\n").error(),
            "the property operationcount is missing: give the number of operations, or a time "
            "limit in seconds by maxexecutiontime");
}

TEST(Workload, ThirdsAddUpToOne) {
  EXPECT_EQ(mistake("readproportion=0.3333333\nupdateproportion=0.3333333\n"
                    "insertproportion=0.3333333\n"),
            "none");
}

// As in YCSB 100 percent, or none of the records, is always the newest; with 0 percent it asks for
// records that there are none of.
TEST(Workload, TheExponentialsLimits) {
  EXPECT_EQ(mistake("exponential.percentile=100\nexponential.frac=0\n"), "none");
  EXPECT_EQ(mistake("exponential.percentile=0\n"),
            "w:4:24: exponential.percentile needs a number from 1e-06 to 100, not '0'");
  EXPECT_EQ(mistake("exponential.percentile=101\n"),
            "w:4:24: exponential.percentile needs a number from 1e-06 to 100, not '101'");
  EXPECT_EQ(mistake("exponential.frac=-1\n"),
            "w:4:18: exponential.frac needs a number from 0 to 1000000000, not '-1'");
}

TEST(Workload, ALoadNeedsNoOperations) {
  EXPECT_TRUE(settings("workload=site.ycsb.workloads.CoreWorkload\nrecordcount=5\n", Phase::kLoad));
}

TEST(LengthHistogram, IsDrawnFromAFile) {
  const testing_support::ScratchDirectory directory;
  const std::string path = directory.path("hist.txt");
  std::ofstream(path) << "BlockSize\t10\n0\t0\n1\t3\n2\t0\n";
  const auto histogram = LengthHistogram::read_file(path);
  ASSERT_TRUE(histogram) << histogram.error();
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t length = histogram->next(random);
    EXPECT_TRUE(length == 10 || length == 20) << length;  // YCSB's own is off by one draw
  }
  std::ofstream(path) << "BlockSize\t10\n0\tx\n";
  EXPECT_EQ(LengthHistogram::read_file(path).error(),
            path + ":2:1: the second column is not a number");
  std::ofstream(path) << "10\t10\n";
  EXPECT_EQ(
      LengthHistogram::read_file(path).error(),
      path + ":1:1: the first line must be BlockSize and a number of bytes from 1 to 16777216");
}

// Lengths whose number wraps look short.
TEST(LengthHistogram, WhatWrapsIsRefused) {
  const testing_support::ScratchDirectory directory;
  const std::string path = directory.path("hist.txt");
  std::string lines = fmt::format("BlockSize\t{}\n", std::uint64_t{1} << 60);
  for (int i = 0; i < 16; ++i)
    lines += fmt::format("{}\t1\n", i);
  std::ofstream(path) << lines;
  EXPECT_EQ(
      settings(kHead + "fieldlengthdistribution=histogram\nfieldlengthhistogram=" + path).error(),
      "w:5:22: fieldlengthhistogram: " + path +
          ":1:1: the first line must be BlockSize and a number of bytes from 1 to 16777216");
  std::ofstream(path) << "BlockSize\t10\n0\t18446744073709551615\n1\t2\n";
  const auto wrapped = LengthHistogram::read_file(path);
  ASSERT_FALSE(wrapped);
  EXPECT_EQ(wrapped.error(), path + ":3:1: the counts add up to more than 64 bits");
}

// ------------------------------------------------------------------------------------ choices

TEST(Chooser, OperationsComeInTheirProportions) {
  Workload workload(*settings(kHead + "readproportion=0.5\nupdateproportion=0.3\n"
                                      "scanproportion=0.2\n"));
  Chooser chooser(workload, 1);
  constexpr int kDraws = 100'000;
  std::array<int, kOperations> counts{};
  for (int i = 0; i < kDraws; ++i)
    ++counts[static_cast<std::size_t>(chooser.operation())];
  EXPECT_NEAR(counts[0], 0.5 * kDraws, 0.01 * kDraws);
  EXPECT_NEAR(counts[1], 0.3 * kDraws, 0.01 * kDraws);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[3], 0.2 * kDraws, 0.01 * kDraws);
}

TEST(Chooser, TheSameSeedChoosesTheSame) {
  Workload workload(*settings(kHead + "requestdistribution=zipfian\n"));
  Chooser first(workload, 5);
  Chooser second(workload, 5);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(first.operation(), second.operation());
    EXPECT_EQ(first.record(), second.record());
  }
}

std::uint64_t record_of(Chooser& chooser) {
  while (true) {
    if (const auto record = chooser.record()) return *record;
  }
}

class EveryDistribution : public testing::TestWithParam<const char*> {};
TEST_P(EveryDistribution, ChoosesOnlyRecordsThatAreThere) {
  Workload workload(*settings(kHead +
                              "readproportion=0.5\nupdateproportion=0\n"
                              "insertproportion=0.5\nrequestdistribution=" +
                              GetParam()));
  Chooser chooser(workload, 3);
  std::set<std::uint64_t> chosen;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t record = record_of(chooser);
    ASSERT_LT(record, 1000U);
    chosen.insert(record);
  }
  EXPECT_GT(chosen.size(), 150U);
  const std::uint64_t first = workload.inserted().next();
  const std::uint64_t second = workload.inserted().next();
  EXPECT_EQ(first, 1000U);
  workload.inserted().acknowledge(second);
  for (int i = 0; i < 20'000; ++i)
    ASSERT_LT(record_of(chooser), 1000U) << "the first insertion is not acknowledged";
  workload.inserted().acknowledge(first);
  for (int i = 0; i < 20'000; ++i)
    ASSERT_LT(record_of(chooser), 1002U);
}
INSTANTIATE_TEST_SUITE_P(Chooser, EveryDistribution,
                         testing::Values("uniform", "zipfian", "latest", "hotspot", "sequential",
                                         "exponential"));

// One number in 10^9 is that of a record: the others are not drawn again behind the caller's back.
TEST(Chooser, ANumberNotInsertedYetIsLeftToTheCaller) {
  Workload workload(*settings(kHead + "requestdistribution=zipfian\nreadproportion=0.5\n"
                                      "updateproportion=0\ninsertproportion=0.5\n"
                                      "operationcount=1000000000000\n"));
  EXPECT_EQ(zipfian_numbers(workload.settings()), 1'000'000'001'000U);
  Chooser chooser(workload, 1);
  EXPECT_EQ(chooser.record(), std::nullopt);
}

// Ranks stay at their records whatever is inserted; with none expected, ranks go to all records.
TEST(Chooser, TheHottestRecordOfWorkloadsAToC) {
  Workload workload(*settings(kHead + "requestdistribution=zipfian\n"));
  Chooser chooser(workload, 4);
  std::array<int, 1000> counts{};
  for (int i = 0; i < 100'000; ++i)
    ++counts[record_of(chooser)];
  EXPECT_EQ(std::ranges::max_element(counts) - counts.begin(), 211);
  EXPECT_NEAR(counts[211], 3900, 300);
}

// ------------------------------------------------------------------------------- command line

Parsed parse(const std::vector<std::string>& arguments) {
  return parse_arguments(arguments, [](const char*) -> const char* { return nullptr; });
}

const std::string kWorkloadA = "bench/kvbench/workloads/workloada";

TEST(CommandLine, TakesYcsbsFlags) {
  const Parsed parsed = parse({"-load", "-P", kWorkloadA, "-threads", "4", "-target", "100", "-s",
                               "-p", "recordcount=77", "-db", "site.ycsb.BasicDB", "-l", "mine"});
  ASSERT_EQ(parsed.kind, Parsed::Kind::kRun) << parsed.text;
  EXPECT_EQ(parsed.options.phase, Phase::kLoad);
  EXPECT_EQ(parsed.options.threads, 4U);
  EXPECT_EQ(parsed.options.target, 100U);
  EXPECT_TRUE(parsed.options.status);
  EXPECT_EQ(parsed.options.label, "mine");
  EXPECT_EQ(parsed.options.workload.record_count, 77U);
  EXPECT_TRUE(parsed.options.notes.empty());
}

TEST(CommandLine, LaterFilesOutrankEarlierOnesAndFlagsOutrankFiles) {
  const testing_support::ScratchDirectory directory;
  std::ofstream(directory.path("large")) << "recordcount=5000\nthreadcount=3\n";
  const Parsed parsed =
      parse({"-p", "threadcount=2", "-P", kWorkloadA, "-P", directory.path("large")});
  ASSERT_EQ(parsed.kind, Parsed::Kind::kRun) << parsed.text;
  EXPECT_EQ(parsed.options.workload.record_count, 5000U);
  EXPECT_EQ(parsed.options.threads, 2U);
  EXPECT_EQ(parsed.options.phase, Phase::kTransactions);
}

TEST(CommandLine, TheConnectionsFlagsAreKvclients) {
  const Parsed parsed = parse({"-P", kWorkloadA, "--server", "[::1]:9", "--transport=shm", "--poll",
                               "busy", "--cache", "1MiB", "--timeout", "250ms"});
  ASSERT_EQ(parsed.kind, Parsed::Kind::kRun) << parsed.text;
  EXPECT_EQ(parsed.options.client.server, "[::1]:9");
  EXPECT_EQ(parsed.options.client.transport, Transport::kShm);
  EXPECT_EQ(parsed.options.client.polling, Polling::kBusy);
  EXPECT_EQ(parsed.options.client.cache_bytes, 1U << 20);
  EXPECT_EQ(parsed.options.client.timeout, std::chrono::milliseconds(250));
}

// The help shows some of them in its own words, and a default in parentheses at a line's end.
TEST(CommandLine, TheHelpHasKvclientsFlagsAndTheirDefaults) {
  const std::string help = parse({"--help"}).text;
  for (const client::ClientOption& option : client::kClientOptions) {
    if (option.flag.empty()) continue;
    SCOPED_TRACE(option.name);
    const std::size_t at = help.find(fmt::format("--{} ", option.flag));
    ASSERT_NE(at, std::string::npos);
    const std::string line = help.substr(at, help.find('\n', at) - at);
    if (!line.ends_with(')')) {
      EXPECT_TRUE(option.holds<std::string>() || option.least < option.most);
      continue;
    }
    const std::size_t begin = line.rfind('(') + 1;
    ClientOptions given;
    EXPECT_TRUE(client::set_option(given, option, line.substr(begin, line.size() - 1 - begin)));
    const auto is_default = [&](auto place) { return given.*place == ClientOptions{}.*place; };
    EXPECT_TRUE(std::visit(is_default, option.place)) << line;
  }
}

TEST(CommandLine, MistakesAreOneSentence) {
  const auto wrong = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-P", kWorkloadA});
    const Parsed parsed = parse(arguments);
    return parsed.kind == Parsed::Kind::kUsageError ? parsed.text : "none";
  };
  EXPECT_EQ(wrong({"-frob", "3"}), "unknown option -frob; see kvbench --help");
  EXPECT_EQ(wrong({"loud"}), "'loud' does not belong to an option; see kvbench --help");
  EXPECT_EQ(wrong({"load", "basic"}),
            "'load' does not belong to an option; see kvbench --help (\"ycsb load basic\" is "
            "kvbench -load)");
  EXPECT_EQ(wrong({"-p", "threads"}), "-p needs NAME=VALUE, not 'threads'");
  EXPECT_EQ(wrong({"-threads", "0"}),
            "-threads: threadcount needs a whole number from 1 to 4096, not '0'");
  EXPECT_EQ(wrong({"--output", "xml"}), "--output needs text, json or csv, not 'xml'");
  EXPECT_EQ(wrong({"--transport", "udp"}), "--transport needs auto, verbs, shm or tcp, not 'udp'");
  EXPECT_EQ(wrong({"--update", "maybe"}), "--update needs atomic or plain, not 'maybe'");
  EXPECT_EQ(wrong({"--in-flight", "0"}),
            "--in-flight needs a whole number from 1 to 1024, not '0'");
  EXPECT_EQ(wrong({"--in-flight", "2", "--update", "atomic"}),
            "--update atomic needs --in-flight 1");
  EXPECT_EQ(wrong({"--cpus", "x"}), "--cpus must be processor numbers, such as 2-5,8, not 'x'");
  EXPECT_EQ(wrong({"--seed", "x"}), "--seed needs a number, not 'x'");
  EXPECT_EQ(wrong({"--durability", "forever"}),
            "--durability needs default, memory, wal or sync, not 'forever'");
  EXPECT_EQ(wrong({"-p", "hdrhistogram.percentiles=50,x"}),
            "-p: hdrhistogram.percentiles needs comma-separated numbers from 0 to 100, not '50,x'");
  EXPECT_EQ(wrong({"-p", "measurement.interval=never"}),
            "-p: measurement.interval needs op, intended or both, not 'never'");
  EXPECT_EQ(parse({"-P"}).text, "-P needs a value; see kvbench --help");
  EXPECT_EQ(parse({"-P", "/nowhere"}).text, "/nowhere: No such file or directory");
  EXPECT_EQ(parse({"-P", ""}).text, "-P needs a file, not ''");
  EXPECT_EQ(wrong({"-p", "fieldlengthdistribution=histogram", "-p", "fieldlengthhistogram=/no"}),
            "-p: fieldlengthhistogram: /no: No such file or directory");
  EXPECT_EQ(
      wrong({"-p", "hdrhistogram.fileoutput=true", "-p", "hdrhistogram.output.path=/nowhere/run-"}),
      "-p: histogram logs cannot be written to /nowhere: No such file or directory");
  EXPECT_EQ(parse({}).text, "no workload given; see kvbench --help");
}

TEST(CommandLine, AMistypedPropertyIsNoted) {
  const Parsed parsed = parse({"-P", kWorkloadA, "-p", "opertioncount=5"});
  ASSERT_EQ(parsed.kind, Parsed::Kind::kRun) << parsed.text;
  ASSERT_EQ(parsed.options.notes.size(), 1U);
  EXPECT_EQ(parsed.options.notes[0], "-p: unknown property 'opertioncount' is ignored");
}

// YCSB draws in silence for hours.
TEST(CommandLine, RareRecordsAreNoted) {
  const std::vector<std::string> run = {
      "-P", kWorkloadA, "-p", "updateproportion=0", "-p", "insertproportion=0.5", "-p"};
  const auto notes = [&](const char* operations) {
    auto arguments = run;
    arguments.emplace_back(operations);
    return parse(arguments).options.notes;
  };
  EXPECT_TRUE(notes("operationcount=1000").empty());
  ASSERT_EQ(notes("operationcount=1000000000").size(), 1U);
  EXPECT_EQ(notes("operationcount=1000000000")[0],
            "operationcount and insertproportion are large: zipfian requests choose among "
            "1000001000 numbers, of which 1000 are records before others are inserted, and draw "
            "about 1000001 times for each");
}

TEST(CommandLine, HelpAndVersionAreTexts) {
  EXPECT_EQ(parse({"--help"}).kind, Parsed::Kind::kText);
  EXPECT_EQ(parse({"--version"}).text, "kvbench 0.1.0\n");
}

}  // namespace
}  // namespace rkv::kvbench
