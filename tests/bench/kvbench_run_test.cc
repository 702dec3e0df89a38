// kvbench against a real kvserver over shared memory: that it runs, that its counters add up, and
// how it ends when something is wrong. Never a time.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/kvbench/keys.h"
#include "bench/kvbench/store.h"
#include "common/check.h"
#include "tests/system/process.h"
#include "tests/system/world.h"

namespace rkv::kvbench {
namespace {

using testing_support::Ended;
using testing_support::ScratchDirectory;
using testing_support::Server;

std::string workload(char letter) {
  return fmt::format("bench/kvbench/workloads/workload{}", letter);
}

std::vector<std::string> command(const Server& server, std::vector<std::string> arguments) {
  // A cache that holds all groups of the few records here, and is made at once.
  std::vector<std::string> argv = {RKV_KVBENCH, "--server", server.address(), "--timeout", "60s",
                                   "--cache",   "1MiB"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

Ended kvbench(const Server& server, std::vector<std::string> arguments) {
  return testing_support::run_program(command(server, std::move(arguments)), 300);
}

// Runs it with --output json; the exit status must be `status`.
nlohmann::json json_of(const Server& server, std::vector<std::string> arguments, int status = 0) {
  const ScratchDirectory directory;
  const std::string path = directory.path("out.json");
  arguments.insert(arguments.end(), {"--output", "json", "-p", "exportfile=" + path});
  const Ended ended = kvbench(server, std::move(arguments));
  EXPECT_EQ(ended.status, status) << ended.output;
  std::ifstream in(path);
  return nlohmann::json::parse(in, nullptr, false);
}

std::uint64_t operations(const nlohmann::json& json, const char* row) {
  const auto& rows = json.at("operations");
  return rows.contains(row) ? rows.at(row).at("operations").get<std::uint64_t>() : 0;
}

std::uint64_t returned_ok(const nlohmann::json& json, const char* row) {
  const auto& rows = json.at("operations");
  return rows.contains(row) ? rows.at(row).at("returns").value("OK", std::uint64_t{0}) : 0;
}

std::uint64_t number(const nlohmann::json& json, const char* group, const char* name) {
  return json.at(group).at(name).get<std::uint64_t>();
}

constexpr std::uint64_t kRecords = 500;
constexpr std::uint64_t kOperations = 2000;

class Kvbench : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new ScratchDirectory;
    server_ = new Server({"--memory", "64MiB", "--data-dir", directory_->path("data")});
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(server_->stop(), 0);
    delete server_;
    delete directory_;
    server_ = nullptr;
    directory_ = nullptr;
  }
  static Server& server() { return *server_; }
  // A store of this one server, as kvbench sees it.
  static Cluster store() {
    const auto map = ShardMap::parse(server().address());
    RKV_CHECK(map.has_value(), "the server's address is one");
    std::string problem;
    ClientOptions options;
    options.transport = testing_support::test_transport();
    options.timeout = std::chrono::seconds(60);
    auto cluster = Cluster::connect(*map, options, &problem);
    RKV_CHECK(cluster.has_value(), problem.c_str());
    return std::move(*cluster);
  }

  static std::vector<std::string> sized(char letter, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"-P",       workload(letter),
                                          "-p",       fmt::format("recordcount={}", kRecords),
                                          "-p",       fmt::format("operationcount={}", kOperations),
                                          "-threads", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

 private:
  static ScratchDirectory* directory_;
  static Server* server_;
};
ScratchDirectory* Kvbench::directory_ = nullptr;
Server* Kvbench::server_ = nullptr;

class KvbenchInFlight : public Kvbench, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Operations, KvbenchInFlight, testing::Values("1", "16"));

TEST_P(KvbenchInFlight, LoadsThenRunsAllSixWorkloadsAndItsCountersAddUp) {
  const auto load = json_of(server(), sized('a', {"-load", "--in-flight", GetParam()}));
  EXPECT_EQ(operations(load, "INSERT"), kRecords);
  EXPECT_EQ(number(load, "overall", "operations"), kRecords);
  EXPECT_EQ(number(load, "client", "value_bytes_written"), kRecords * 1012);
  Client client = server().client();
  for (const char letter : {'a', 'b', 'c', 'd', 'e', 'f'}) {
    const std::uint64_t puts_before = testing_support::server_stat(client, "puts");
    // Each workload from the same records: d and e insert again what another has inserted.
    const auto json = json_of(
        server(), sized(letter, {"-t", "--in-flight", GetParam(), "-p", "maxscanlength=10"}));
    ASSERT_TRUE(json.is_object()) << letter;
    const std::uint64_t puts = testing_support::server_stat(client, "puts") - puts_before;
    const std::uint64_t reads = operations(json, "READ");
    const std::uint64_t updates = operations(json, "UPDATE");
    const std::uint64_t inserts = operations(json, "INSERT");
    const std::uint64_t scans = operations(json, "SCAN");
    const std::uint64_t both = operations(json, "READ-MODIFY-WRITE");
    EXPECT_EQ(reads + updates + inserts + scans - both, kOperations) << letter;
    EXPECT_EQ(number(json, "overall", "operations"), kOperations) << letter;
    EXPECT_EQ(number(json, "overall", "failed"), 0U) << letter;
    for (const char* row : {"READ", "UPDATE", "INSERT", "SCAN"})
      EXPECT_EQ(returned_ok(json, row), operations(json, row)) << letter << row;
    // The rows agree with the server's requests and the client's READs.
    const std::uint64_t conflicts = number(json, "client", "update_conflicts");
    EXPECT_EQ(puts, updates + inserts) << letter;  // those that were done
    EXPECT_EQ(number(json, "client", "gets"), reads + updates - both + conflicts) << letter;
    EXPECT_GE(number(json, "client", "reads"), number(json, "client", "one_sided_gets")) << letter;
    EXPECT_GE(number(json, "client", "records_scanned"), scans) << letter;
    EXPECT_EQ(json.at("complete"), true) << letter;
  }
}

// The same seed draws the same operations however many are in flight.
TEST_F(Kvbench, SeveralInFlightMakeTheSameOperationsAsOne) {
  ASSERT_EQ(kvbench(server(), sized('a', {"-load"})).status, 0);
  const auto counts = [&](const char* in_flight) {
    const auto json = json_of(server(), sized('f', {"-t", "--seed", "5", "--update", "plain",
                                                    "-threads", "1", "--in-flight", in_flight}));
    EXPECT_EQ(json.at("settings").at("in_flight").dump(), in_flight);
    return std::array{operations(json, "READ"), operations(json, "UPDATE"),
                      operations(json, "READ-MODIFY-WRITE"), number(json, "client", "gets"),
                      number(json, "client", "value_bytes_written")};
  };
  const auto singly = counts("1");
  EXPECT_EQ(counts("7"), singly);
  EXPECT_EQ(counts("300"), singly);
}

// Open loop: latencies from when each operation was due, of every operation.
TEST_F(Kvbench, SeveralInFlightKeepToATarget) {
  ASSERT_EQ(kvbench(server(), sized('a', {"-load"})).status, 0);
  const auto json = json_of(server(), sized('f', {"-t", "--in-flight", "8", "-target", "20000",
                                                  "-p", "measurement.interval=both"}));
  for (const char* row : {"READ", "UPDATE", "READ-MODIFY-WRITE"}) {
    const auto& rows = json.at("operations");
    const auto& plain = rows.at(row);
    const auto& intended = rows.at(std::string("Intended-") + row);
    EXPECT_EQ(intended.at("operations"), plain.at("operations")) << row;
    EXPECT_GE(intended.at("latency_ns").at("max"), plain.at("latency_ns").at("max")) << row;
  }
  // 2,000 operations at 20,000 a second: the last is due when a tenth of a second is over.
  EXPECT_GE(json.at("overall").at("runtime_ms").get<double>(), 99.0);
}

TEST_F(Kvbench, TextIsYcsbs) {
  ASSERT_EQ(kvbench(server(), sized('a', {"-load"})).status, 0);
  const Ended ended = kvbench(
      server(), sized('a', {"-t", "-s", "-p", "measurement.interval=both", "-target", "100000"}));
  ASSERT_EQ(ended.status, 0) << ended.output;
  std::uint64_t sum = 0;
  std::istringstream in(ended.output);
  for (std::string line; std::getline(in, line);) {
    for (const char* row : {"[READ], Operations, ", "[UPDATE], Operations, "}) {
      if (line.starts_with(row)) sum += std::stoull(line.substr(std::string(row).size()));
    }
  }
  EXPECT_EQ(sum, kOperations) << ended.output;
  for (const char* wanted :
       {"[OVERALL], RunTime(ms), ", "[OVERALL], Throughput(ops/sec), ",
        "[READ], AverageLatency(us), ", "[READ], 99thPercentileLatency(us), ",
        "[Intended-READ], Operations, ", "[Intended-UPDATE], MaxLatency(us), ",
        "[CLEANUP], Operations, 2\n", " 0 sec: 0 operations; ", " sec: 2000 operations; "})
    EXPECT_NE(ended.output.find(wanted), std::string::npos) << wanted << ended.output;
}

// Both at once, since each takes its second.
TEST_F(Kvbench, TimeEndsARunThatHasNoOtherEndAndALoadTooEarly) {
  ASSERT_EQ(kvbench(server(), sized('c', {"-load"})).status, 0);
  testing_support::Process load(
      command(server(), {"-load", "-P", workload('c'), "-p", "insertorder=ordered", "-target",
                         "1000", "-p", "recordcount=1000000", "-p", "maxexecutiontime=1"}));
  const auto json =
      json_of(server(), sized('c', {"-t", "-p", "operationcount=0", "-p", "maxexecutiontime=1"}));
  EXPECT_EQ(json.at("complete"), true);
  EXPECT_GT(operations(json, "READ"), 0U);
  EXPECT_EQ(number(json, "overall", "operations_not_done"), 0U);
  const Ended ended = load.wait();
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_TRUE(ended.output.starts_with("kvbench: maxexecutiontime ended before the load; "))
      << ended.output;
  EXPECT_NE(ended.output.find("[OVERALL], PartialResults, 1\n"), std::string::npos) << ended.output;
}

TEST_F(Kvbench, DataIntegrityIsVerifiedAndSeesAChangedRecord) {
  const std::vector<std::string> integrity = {"-p", "dataintegrity=true", "-p", "fieldlength=30"};
  auto load = sized('f', {"-load"});
  load.insert(load.end(), integrity.begin(), integrity.end());
  ASSERT_EQ(kvbench(server(), load).status, 0);
  auto run = sized('f', {"-t"});
  run.insert(run.end(), integrity.begin(), integrity.end());
  for (const char* in_flight : {"1", "16"}) {
    auto one = run;
    one.insert(one.end(), {"--in-flight", in_flight});
    const auto json = json_of(server(), one);
    EXPECT_EQ(returned_ok(json, "VERIFY"), operations(json, "READ")) << in_flight;
  }
  // The hottest record, changed by somebody else.
  Client client = server().client();
  const std::string key = KeyNames{}.name(ycsb_hash(0) % static_cast<std::int64_t>(kRecords));
  std::string value = client.get(key)->value;
  value.back() ^= 1;
  ASSERT_TRUE(client.put(key, value));
  run.insert(run.end(), {"--in-flight", "4"});
  const auto changed = json_of(server(), run, 1);
  EXPECT_GT(changed.at("operations").at("VERIFY").at("returns").value("UNEXPECTED_STATE", 0), 0);
  EXPECT_EQ(changed.at("complete"), true);
}

TEST_F(Kvbench, RecordsThatAreNotThereAreNotFound) {
  const Ended ended =
      kvbench(server(), sized('c', {"-t", "-p", "recordcount=90000", "-p",
                                    "requestdistribution=sequential", "-p", "insertstart=80000"}));
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_NE(ended.output.find("is missing: was -load run?"), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("[READ], Return=NOT_FOUND, 2000\n"), std::string::npos);
  EXPECT_NE(ended.output.find("[READ-FAILED], Operations, 2000\n"), std::string::npos);
  EXPECT_NE(ended.output.find("kvbench: 2000 operations failed"), std::string::npos);
}

// Two clients change two fields of one record between each other's steps.
TEST_F(Kvbench, AnAtomicUpdateLosesNoOtherFieldAndAPlainOneDoes) {
  for (const bool plain : {false, true}) {
    const StoreSettings settings{.plain_updates = plain, .value_bytes = 64};
    Store first(store(), settings);
    Store second(store(), settings);
    ASSERT_TRUE(first.insert("shared", {"a", "b"}).ok());
    ASSERT_TRUE(first.read("shared").ok());
    ASSERT_TRUE(second.update("shared", 1, {"changed"}).ok());
    ASSERT_TRUE(first.update_read("shared", 0, {"also"}).ok());
    ASSERT_TRUE(second.read("shared").ok());
    EXPECT_EQ(second.fields()[0], "also");
    EXPECT_EQ(second.fields()[1], plain ? "b" : "changed");
    EXPECT_EQ(first.counters().update_conflicts, plain ? 0U : 1U);
  }
}

TEST_F(Kvbench, AForeignValueIsAnUnexpectedState) {
  Store kept(store(), {.value_bytes = 8});
  ASSERT_TRUE(kept.client().put("foreign", "not a record"));
  EXPECT_EQ(kept.read("foreign").outcome, Outcome::kUnexpectedState);
  EXPECT_EQ(kept.update("foreign", 0, {"x"}).outcome, Outcome::kUnexpectedState);
  ASSERT_TRUE(kept.insert("long", {std::string(100'000, 'x')}).ok());
  ASSERT_TRUE(kept.read("long").ok()) << "longer than was expected";
  EXPECT_EQ(kept.fields()[0].size(), 100'000U);
}

// -------------------------------------------------------------------------- when it goes wrong

constexpr const char* kEndless = "operationcount=1000000000";

// Until the run is well under way; false: it ended before.
bool wait_for_puts(Server& server, testing_support::Process& run) {
  Client client = server.client();
  const std::uint64_t before = testing_support::server_stat(client, "puts");
  while (run.running()) {
    if (testing_support::server_stat(client, "puts") > before + 50) return true;
  }
  return false;
}

class KvbenchEndsEarly : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Operations, KvbenchEndsEarly, testing::Values("1", "16"));

TEST_P(KvbenchEndsEarly, AServerKilledInTheMiddleLeavesPartialResults) {
  Server server;
  ASSERT_EQ(kvbench(server, {"-load", "-P", workload('a')}).status, 0);
  testing_support::Process run(command(server, {"-t", "-P", workload('a'), "-p", kEndless,
                                                "--timeout", "300ms", "--in-flight", GetParam()}));
  ASSERT_TRUE(wait_for_puts(server, run)) << run.output();
  server.kill();
  const Ended ended = run.wait();
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_NE(ended.output.find(
                fmt::format("kvbench: the server at {} is unreachable: ", server.address())),
            std::string::npos)
      << ended.output;
  EXPECT_NE(ended.output.find("[OVERALL], PartialResults, 1\n"), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("[READ], Operations, "), std::string::npos) << ended.output;
}

TEST_P(KvbenchEndsEarly, AServerKilledInALoadToo) {
  Server server;
  testing_support::Process run(command(
      server, {"-load", "-P", workload('a'), "-p", "recordcount=100000000", "-p", "fieldcount=1",
               "-p", "fieldlength=1", "--timeout", "300ms", "--in-flight", GetParam()}));
  ASSERT_TRUE(wait_for_puts(server, run)) << run.output();
  server.kill();
  const Ended ended = run.wait();
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_NE(ended.output.find("[OVERALL], PartialResults, 1\n"), std::string::npos) << ended.output;
}

TEST_P(KvbenchEndsEarly, AFullServerSaysWhatToDo) {
  Server server({"--memory", "16MiB"});
  const Ended ended = kvbench(server, {"-load", "-P", workload('a'), "-p", "recordcount=100000",
                                       "-p", "fieldlength=10000", "--in-flight", GetParam()});
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_NE(ended.output.find(" was not inserted: "), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("delete some keys); the results cover "), std::string::npos)
      << ended.output;
  EXPECT_NE(ended.output.find("[OVERALL], PartialResults, 1\n"), std::string::npos) << ended.output;
}

TEST(KvbenchEnds, ASignalEndsARunWithWhatItHas) {
  Server server;
  ASSERT_EQ(kvbench(server, {"-load", "-P", workload('a')}).status, 0);
  testing_support::Process run(command(server, {"-t", "-P", workload('a'), "-p", kEndless}));
  ASSERT_TRUE(wait_for_puts(server, run)) << run.output();
  run.signal(SIGINT);
  const Ended ended = run.wait();
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_NE(ended.output.find("kvbench: stopped by a signal"), std::string::npos);
  EXPECT_NE(ended.output.find("[OVERALL], PartialResults, 1\n"), std::string::npos);
}

// It waits for a place at the server, for which nobody is there to wait.
TEST(KvbenchEnds, ASignalEndsItBeforeTheRunAsWell) {
  Server server({"--memory", "16MiB", "--max-clients", "1"});
  const Client other = server.client();
  testing_support::Process run(command(server, {"-load", "-P", workload('a')}));
  ASSERT_TRUE(server.process().wait_for_output(" is refused: ")) << run.output();
  run.signal(SIGINT);
  EXPECT_EQ(run.wait(20).status, -SIGINT);
}

// One number in 10^11 that its zipfian draws is that of a record.
TEST_P(KvbenchEndsEarly, ASignalEndsARunThatFindsNoRecord) {
  Server server;
  testing_support::Process run(command(
      server,
      {"-t", "-P", workload('a'), "-s", "-p", "updateproportion=0", "-p", "insertproportion=0.5",
       "-p", "operationcount=281474976710656", "--in-flight", GetParam()}));
  ASSERT_TRUE(run.wait_for_output(" 0 sec: 0 operations; ")) << run.output();
  run.signal(SIGINT);
  const Ended ended = run.wait(20);
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_NE(ended.output.find("zipfian requests choose among 281474976711656 numbers, of which "
                              "1000 are records before others are inserted"),
            std::string::npos)
      << ended.output;
  EXPECT_NE(ended.output.find("[OVERALL], PartialResults, 1\n"), std::string::npos) << ended.output;
}

// A user who may have four processes and threads. Root may have any number, so that it becomes
// one by its real number, without the two capabilities that lift the limit; to the server, and to
// files, it is root still. Who is not root has more than one already: no thread starts.
TEST(KvbenchEnds, AThreadThatCannotBeStartedIsTold) {
  Server server;
  const bool root = geteuid() == 0;
  std::vector<std::string> argv = {"/usr/bin/prlimit", root ? "--nproc=4" : "--nproc=1"};
  if (root) {
    argv.insert(argv.end(), {"/usr/bin/setpriv", "--ruid=61789", "--inh-caps=-all",
                             "--bounding-set=-sys_resource,-sys_admin"});
  }
  for (std::string& word : command(server, {"-load", "-P", workload('a'), "-threads", "8"}))
    argv.push_back(std::move(word));
  const Ended ended = testing_support::run_program(std::move(argv), 60);
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_TRUE(ended.output.starts_with("kvbench: cannot start thread ")) << ended.output;
  EXPECT_TRUE(ended.output.ends_with(" of 8: Resource temporarily unavailable\n")) << ended.output;
  if (root) {
    EXPECT_EQ(ended.output.find("cannot start thread 1 of"), std::string::npos);
  }
}

TEST(KvbenchEnds, AScanningWorkloadOnAServerWithoutADiskIsToldAtOnce) {
  Server server;
  const Ended ended = kvbench(server, {"-t", "-P", workload('e')});
  EXPECT_EQ(ended.status, 4);
  EXPECT_TRUE(ended.output.starts_with("kvbench: the workload scans, but the server cannot: "))
      << ended.output;
  EXPECT_EQ(ended.output.find("[OVERALL]"), std::string::npos);
}

// Its updates are PUTs without a GET, which an empty server takes.
TEST(KvbenchEnds, ARestartedServerIsWaitedFor) {
  Server server;
  ASSERT_EQ(kvbench(server, {"-load", "-P", workload('a')}).status, 0);
  testing_support::Process run(
      command(server, {"-t", "-P", workload('a'), "-p", "writeallfields=true", "-p", kEndless}));
  ASSERT_TRUE(wait_for_puts(server, run)) << run.output();
  server.kill();
  server.start();  // empty now
  ASSERT_TRUE(wait_for_puts(server, run)) << run.output();
  run.signal(SIGTERM);
  const Ended ended = run.wait();
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_NE(ended.output.find("kvbench: stopped by a signal"), std::string::npos);
  EXPECT_NE(ended.output.find("[READ], Return=NOT_FOUND, "), std::string::npos) << ended.output;
}

// Its places are those of the control connection and of one thread.
TEST(KvbenchEnds, AServerWithoutAPlaceIsWaitedFor) {
  Server server({"--memory", "16MiB", "--max-clients", "2"});
  std::optional<Client> other(server.client());
  testing_support::Process run(command(server, {"-load", "-P", workload('a')}));
  ASSERT_TRUE(server.process().wait_for_output(" is refused: ")) << run.output();
  other.reset();
  const Ended ended = run.wait();
  EXPECT_EQ(ended.status, 0) << ended.output;
}

TEST(KvbenchEnds, NobodyThereIsExitStatusThree) {
  const Ended ended = testing_support::run_program(
      {RKV_KVBENCH, "--server", "127.0.0.1:1", "--timeout", "200ms", "-P", workload('a')});
  EXPECT_EQ(ended.status, 3) << ended.output;
  EXPECT_TRUE(ended.output.starts_with("kvbench: cannot reach 127.0.0.1:1: ")) << ended.output;
}

TEST(KvbenchEnds, AMalformedFileIsExitStatusTwo) {
  const ScratchDirectory directory;
  std::ofstream(directory.path("bad")) << "recordcount=10\nreadproportion=\\u00\n";
  const Ended ended = testing_support::run_program({RKV_KVBENCH, "-P", directory.path("bad")});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output,
            fmt::format(
                "kvbench: {}:2:16: \\u needs four hexadecimal digits; write \\\\ for a backslash\n",
                directory.path("bad")));
}

TEST(KvbenchEnds, ResultsThatCannotBeWrittenAreShown) {
  Server server;
  const Ended ended =
      kvbench(server, {"-load", "-P", workload('a'), "-p", "exportfile=/nowhere/x"});
  EXPECT_EQ(ended.status, 4);
  EXPECT_NE(ended.output.find("kvbench: cannot write to /nowhere/x: No such file or directory"),
            std::string::npos);
  EXPECT_NE(ended.output.find("[INSERT], Operations, 1000\n"), std::string::npos);
}

}  // namespace
}  // namespace rkv::kvbench
