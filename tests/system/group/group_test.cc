// A replicated group of kvservers with a real etcd: what was acknowledged survives the death of any
// one of three processes, and of all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/system/group/replica_group.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string key_of(std::uint64_t number) {
  return fmt::format("key-{}", number);
}

// An emulated processor needs a hundred times as long for a write.
bool is_slow() {
  return test_transport() == Transport::kVerbs;
}
std::uint64_t writes(std::uint64_t count) {
  return is_slow() ? count / 10 : count;
}

// EXPECTs that the group has these keys, each with its number.
void expect_numbers(Client& client, std::uint64_t count) {
  for (std::uint64_t number = 0; number < count; ++number) {
    const auto got = client.get(key_of(number));
    ASSERT_TRUE(got) << number << " of " << count << ": " << to_string(got.error());
    ASSERT_EQ(got->value, std::to_string(number));
  }
}

// Puts keys of rising numbers, one after the other, until it fails.
class Writer {
 public:
  Writer(Client client, Durability level) : client_(std::move(client)) {
    thread_ = std::thread([this, level] {
      for (std::uint64_t number = 0;; ++number) {
        const auto put = client_.put_with(
            key_of(number), std::to_string(number),
            {.timeout = milliseconds(is_slow() ? 10'000 : 2000), .durability = level});
        if (!put) return;
        acknowledged_.store(number + 1);
      }
    });
  }
  ~Writer() { thread_.join(); }

  std::uint64_t acknowledged() const { return acknowledged_.load(); }
  void wait_for(std::uint64_t count) const {
    const auto end = steady_clock::now() + std::chrono::seconds(120);
    while (acknowledged() < count && steady_clock::now() < end)
      std::this_thread::sleep_for(milliseconds(1));
    EXPECT_GE(acknowledged(), count);
  }
  // Waits for its end.
  std::uint64_t finish() {
    thread_.join();
    thread_ = std::thread([] {});
    return acknowledged();
  }

 private:
  Client client_;
  std::atomic<std::uint64_t> acknowledged_{0};
  std::thread thread_;
};

TEST(Group, TheFirstReplicaFoundsItAndOthersJoin) {
  ReplicaGroup group(3);
  group.start_all();
  Client client = group.client();
  ASSERT_TRUE(client.put("greeting", "hello"));
  EXPECT_EQ(client.get("greeting")->value, "hello");
  ASSERT_TRUE(client.put_with("kept", "x", {.durability = Durability::kSync}));
  ASSERT_TRUE(client.put_with("written", "x", {.durability = Durability::kWal}));
  ASSERT_TRUE(client.remove("kept"));
  EXPECT_EQ(client.get("kept").error().code, Code::kNotFound);
  const std::string large(1 << 20, 'l');
  const auto put = client.put("large", large);
  ASSERT_TRUE(put) << to_string(put.error()) << group.logs();
  EXPECT_EQ(client.get("large")->value, large);
  ASSERT_TRUE(client.incr("visits"));
  EXPECT_EQ(client.incr("visits")->number, 2);
  // A backup names the primary.
  auto directed = Client::connect({.server = group.address(1), .transport = test_transport()});
  ASSERT_TRUE(directed) << to_string(directed.error());
  EXPECT_EQ(directed->get("large")->value, large);
  EXPECT_EQ(group.stop(2), 0) << group.logs();
  EXPECT_EQ(group.stop(1), 0) << group.logs();
  EXPECT_EQ(group.stop(0), 0) << group.logs();
}

TEST(Group, WhatWasAcknowledgedSurvivesThePrimary) {
  ReplicaGroup group(3);
  group.start_all();
  std::uint64_t acknowledged = 0;
  steady_clock::time_point killed;
  const std::size_t first = group.wait_for_primary();
  {
    Writer writer(*group.connect(first), Durability::kMemory);
    writer.wait_for(writes(1000));
    killed = steady_clock::now();
    group.kill(first);
    acknowledged = writer.finish();
  }
  const std::size_t primary = group.wait_for_primary(first);
  const auto gap = std::chrono::duration_cast<milliseconds>(steady_clock::now() - killed);
  std::printf("%lu writes acknowledged; no service for at most %ld ms\n",
              static_cast<unsigned long>(acknowledged), gap.count());
  Client client = *group.connect(primary);
  expect_numbers(client, acknowledged);
  ASSERT_TRUE(client.put("after", "it"));
  // The dead one comes back and catches up.
  group.start(first);
  group.wait_for_in_sync(3);
}

TEST(Group, KvclientFindsThePrimaryAndWaitsForTheNextOne) {
  ReplicaGroup group(2);
  group.start_all();
  const std::string servers = group.address(1) + "," + group.address(0);
  EXPECT_EQ(kvclient(servers, {"--timeout", "60s", "put", "greeting", "hello"}).status, 0);
  group.kill(group.wait_for_primary());
  const Ended got = kvclient(servers, {"--timeout", "60s", "get", "greeting"});
  EXPECT_EQ(got.status, 0) << got.output;
  EXPECT_EQ(got.output, "hello");
}

TEST(Group, ABackupThatDiesIsLeftOutAndComesBack) {
  ReplicaGroup group(3);
  group.start_all();
  std::uint64_t acknowledged = 0;
  const std::size_t primary = group.wait_for_primary();
  const std::size_t backup = (primary + 1) % 3;
  {
    Writer writer(*group.connect(primary), Durability::kMemory);
    writer.wait_for(writes(200));
    group.kill(backup);
    group.wait_for_in_sync(2);
    writer.wait_for(writer.acknowledged() + writes(200));  // the others go on
    group.start(backup);
    group.wait_for_in_sync(3);
    writer.wait_for(writer.acknowledged() + writes(200));
    group.kill(primary);
    acknowledged = writer.finish();
  }
  Client client = *group.connect(group.wait_for_primary(primary));
  expect_numbers(client, acknowledged);
}

// Its memory still answers READs while it stands still, and its clients wait.
TEST(Group, APrimaryThatStandsStillIsReplacedAndComesBackAsABackup) {
  ReplicaGroup group(3);
  group.start_all();
  {
    Client client = group.client();
    ASSERT_TRUE(client.put("who", "the first"));
  }
  const std::size_t first = group.wait_for_primary();
  group.process(first).signal(SIGSTOP);
  const std::size_t primary = group.wait_for_primary(first);
  Client client = *group.connect(primary);
  EXPECT_EQ(client.get("who")->value, "the first");
  ASSERT_TRUE(client.put("who", "the second"));
  group.process(first).signal(SIGCONT);
  ASSERT_TRUE(group.process(first).wait_for_output("starting again as a backup", 60))
      << group.logs();
  group.wait_for_in_sync(3);
  ASSERT_TRUE(client.put("who", "the second, with all"));
  group.kill(primary);
  Client last = *group.connect(group.wait_for_primary(primary));
  EXPECT_EQ(last.get("who")->value, "the second, with all");
}

TEST(Group, WithoutEtcdItGoesOnAndWithItReplacesAgain) {
  ReplicaGroup group(3);
  group.start_all();
  const std::size_t primary = group.wait_for_primary();
  Client client = *group.connect(primary);
  group.etcd().kill(0);
  for (std::uint64_t i = 0; i < writes(100); ++i)
    ASSERT_TRUE(client.put(key_of(0), std::to_string(i)));
  group.kill((primary + 1) % 3);  // nobody can leave it out now, so writes wait
  const auto put = client.put_with("late", "x", {.timeout = milliseconds(1500)});
  ASSERT_FALSE(put);
  group.etcd().start(0);
  group.etcd().wait_for(0);
  group.wait_for_in_sync(2);
  Client again = group.client();
  ASSERT_TRUE(again.put("late", "y"));
  EXPECT_EQ(again.get(key_of(0))->value, std::to_string(writes(100) - 1));
}

TEST(Group, WhatWasWrittenSurvivesTheLossOfAll) {
  ReplicaGroup group(3);
  group.start_all();
  std::uint64_t acknowledged = 0;
  {
    Writer writer(group.client(), Durability::kWal);
    writer.wait_for(writes(300));
    for (std::size_t number : {1U, 0U, 2U})
      group.kill(number);
    acknowledged = writer.finish();
  }
  for (std::size_t number : {2U, 1U, 0U})
    group.start(number);
  Client client = *group.connect(group.wait_for_primary());
  expect_numbers(client, acknowledged);
  group.wait_for_in_sync(3);
}

// The log that leads to where it ends is in no memory any more.
TEST(Group, AReplicaThatIsFarBehindGetsACopyOfTheDatabase) {
  ReplicaGroup group(2);
  group.start(0);
  std::uint64_t acknowledged = 0;
  {
    Client client = group.client();
    for (; acknowledged < writes(500); ++acknowledged)
      ASSERT_TRUE(client.put(key_of(acknowledged), std::to_string(acknowledged)));
  }
  EXPECT_EQ(group.stop(0), 0);
  group.start(0);
  {
    Client client = group.client();
    for (; acknowledged < writes(600); ++acknowledged)
      ASSERT_TRUE(client.put(key_of(acknowledged), std::to_string(acknowledged)));
    group.start(1);
    ASSERT_TRUE(group.process(1).wait_for_output("its database is copied", 60)) << group.logs();
    group.wait_for_in_sync(2);
    for (; acknowledged < writes(700); ++acknowledged)
      ASSERT_TRUE(client.put(key_of(acknowledged), std::to_string(acknowledged)));
  }
  group.kill(0);
  Client client = *group.connect(group.wait_for_primary(0));
  expect_numbers(client, acknowledged);
}

TEST(Group, ADataDirectoryOfAGroupIsNotServedAlone) {
  ReplicaGroup group(1);
  group.start_all();
  EXPECT_EQ(group.stop(0), 0);
  const Ended ended =
      run_program({RKV_KVSERVER, "--listen", "127.0.0.1:0", "--data-dir", group.data(0)});
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_NE(ended.output.find("belongs to a replica of a group"), std::string::npos)
      << ended.output;
}

TEST(Group, TheFirstReplicaMayBringRecordsAndOthersMayNot) {
  ReplicaGroup group(2);
  for (std::size_t number : {0U, 1U}) {  // servers of their own
    Server server({"--data-dir", group.data(number), "--memory", "32MiB"});
    Client client = server.client();
    ASSERT_TRUE(client.put("mine", std::to_string(number)));
    EXPECT_EQ(server.stop(), 0);
  }
  group.start(0);
  ASSERT_TRUE(group.process(0).wait_for_output("kvserver ready", 240)) << group.logs();
  EXPECT_EQ(group.client().get("mine")->value, "0");
  group.start(1);
  const Ended ended = group.ended(1);
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_NE(ended.output.find("give n1 an empty --data-dir"), std::string::npos) << ended.output;
}

}  // namespace
}  // namespace rkv::testing_support
