// A group, and an etcd that has lost its data, has no space, or is cut off: what is answered stays
// right, and a healthy group serves on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/system/group/replica_group.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr const char* kKey = "rkv/groups/test/configuration";

void expect_served(Client& client, const std::string& value) {
  const auto put = client.put("key", value);
  EXPECT_TRUE(put) << to_string(put.error());
  const auto got = client.get("key");
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->value, value);
}

// Whether a line of its log has this text within three minutes.
bool says(ReplicaGroup& group, std::size_t number, const std::string& text) {
  return group.process(number).wait_for_output(text, 180);
}

TEST(GroupTrust, ABlankReplicaWaitsForAGroupAndFoundsNoneByItself) {
  ReplicaGroup group(2);
  group.start(1);
  EXPECT_TRUE(says(group, 1, "etcd has no group test: start one replica with --found-group"));
  EXPECT_EQ(group.configuration(), "");
  group.start(0);
  group.wait_for_in_sync(2);
  Client client = group.client();
  expect_served(client, "value");
}

// The replica that founds has lost its data too.
TEST(GroupTrust, AGroupServesOnThoughEtcdHasAnotherOneOfItsName) {
  ReplicaGroup group(3);
  group.start(0);
  ASSERT_TRUE(group.process(0).wait_for_output("kvserver ready", 120)) << group.logs();
  group.start(1);
  group.wait_for_in_sync(2);
  Client client = group.client_of(0);
  expect_served(client, "before");
  group.etcd().lose_data(0);
  group.etcd().start(0);
  group.etcd().wait_for(0);
  for (int i = 0; i < 60; ++i)  // revisions as high as they were
    group.etcd().control(fmt::format("put other{} x", i));
  group.start(2, {"--found-group"});
  ASSERT_TRUE(group.process(2).wait_for_output("kvserver ready", 120)) << group.logs();
  for (const std::size_t number : {0U, 1U})
    EXPECT_TRUE(says(group, number, "etcd has another group of this name")) << group.logs();
  std::this_thread::sleep_for(seconds(2));
  expect_served(client, "after");
  EXPECT_EQ(group.logs().find("has ended its part in the group"), std::string::npos)
      << group.logs();
}

TEST(GroupTrust, AReplicaRefusesAnOlderConfigurationThanItHasKnown) {
  ReplicaGroup group(2);
  group.start(0);
  (void)group.wait_for_primary();
  const std::string alone = group.configuration();
  group.start(1);
  group.wait_for_in_sync(2);
  group.kill(0);  // n1 is the primary, and alone
  EXPECT_EQ(group.wait_for_primary(0), 1U);
  {
    Client client = group.client_of(1);
    expect_served(client, "acknowledged");
  }
  // n0 was the last one in sync once, and would be the primary without that value.
  EXPECT_EQ(group.stop(1), 0);
  group.start(0);
  EXPECT_TRUE(says(group, 0, "(not in sync)")) << group.logs();
  std::this_thread::sleep_for(seconds(1));  // until it is noted
  group.kill(0);
  group.etcd().control(fmt::format("put {} '{}'", kKey, alone));
  group.start(0);
  const Ended refused = group.ended(0);
  EXPECT_EQ(refused.status, 4) << refused.output;
  EXPECT_NE(refused.output.find("etcd has an older configuration"), std::string::npos)
      << refused.output;
}

// Its other member is gone, and so is etcd: somebody may have put another process in its place.
TEST(GroupTrust, APrimaryThatIsAloneIsNotBelievedForLongWithoutEtcd) {
  ReplicaGroup group(2);
  group.start_all();
  group.kill(1);
  group.wait_for_in_sync(1);
  Client client = group.client_of(0);
  expect_served(client, "value");
  group.etcd().kill(0);
  const auto silent_at = steady_clock::now();
  EXPECT_TRUE(holds_in_time([&] { return !client.get("key", milliseconds(300)).has_value(); }));
  EXPECT_GT(steady_clock::now() - silent_at, seconds(8)) << "etcd may be started again meanwhile";
  EXPECT_LT(steady_clock::now() - silent_at, seconds(60));
  EXPECT_TRUE(says(group, 0, "this primary serves nobody")) << group.logs();
  group.etcd().start(0);
  group.etcd().wait_for(0);
  expect_served(client, "again");
}

TEST(GroupTrust, APrimaryThatIsToldToServesOnAloneWithoutEtcd) {
  ReplicaGroup group(2, {"--alone-without-etcd"});
  group.start_all();
  group.kill(1);
  group.wait_for_in_sync(1);
  Client client = group.client_of(0);
  group.etcd().kill(0);
  std::this_thread::sleep_for(seconds(20));
  expect_served(client, "value");
}

// A copy of a data directory: the process that used it may live on elsewhere.
TEST(GroupTrust, AProcessThatReplacesOneThatWasAloneWaitsForItsLease) {
  ReplicaGroup group(2);
  group.start_all();
  group.kill(1);
  group.wait_for_in_sync(1);
  const auto started = [&] {
    const auto began = steady_clock::now();
    group.start(0);
    EXPECT_TRUE(group.process(0).wait_for_output("kvserver ready", 120)) << group.logs();
    return steady_clock::now() - began;
  };
  group.kill(0);
  EXPECT_LT(started(), seconds(14)) << "its last process has ended for certain";
  group.kill(0);
  const std::filesystem::path data = group.data(0);
  const std::filesystem::path moved = data.string() + "-moved";
  std::filesystem::rename(data, moved);
  std::filesystem::copy(moved, data, std::filesystem::copy_options::recursive);
  EXPECT_GT(started(), seconds(15)) << group.logs();
  EXPECT_NE(group.log(0).find("may live elsewhere"), std::string::npos) << group.logs();
  group.kill(0);
  EXPECT_LT(started(), seconds(14)) << "it has waited once";
}

// etcd answers reads, and stores nothing: its space is used up.
class FullEtcd : public ::testing::Test {
 protected:
  ReplicaGroup group_{3, {}, {RKV_KVSERVER}, "--quota-backend-bytes 2000000"};
};

TEST_F(FullEtcd, APrimaryIsNotMovedAndTheGroupServesOn) {
  group_.start_all();
  const std::size_t primary = group_.wait_for_primary();
  Client client = group_.client_of(primary);
  group_.etcd().fill();
  const Ended moved = kvclient(
      group_.address(primary),
      {"--timeout", "10s", "admin", "move-primary", fmt::format("n{}", (primary + 1) % 3)});
  EXPECT_NE(moved.status, 0);
  EXPECT_NE(moved.output.find("etcd stores no change"), std::string::npos) << moved.output;
  expect_served(client, "value");
  EXPECT_TRUE(says(group_, primary, "etcd answers, but stores no change")) << group_.logs();
}

TEST_F(FullEtcd, AReplicaThatCannotJoinMayDie) {
  group_.start(0);
  ASSERT_TRUE(group_.process(0).wait_for_output("kvserver ready", 120)) << group_.logs();
  group_.start(1);
  group_.wait_for_in_sync(2);
  Client client = group_.client_of(0);
  group_.etcd().fill();
  group_.start(2);
  ASSERT_TRUE(says(group_, 0, "replica n2 has connected")) << group_.logs();
  std::this_thread::sleep_for(seconds(3));
  expect_served(client, "while it joins");
  group_.kill(2);
  std::this_thread::sleep_for(seconds(4));
  expect_served(client, "after its death");
}

// A backup stands still, and is left out while a write waits for it.
TEST(GroupTrust, AWriteThatLosesItsCopiesIsNotAcknowledged) {
  ReplicaGroup group(2, {"--min-copies", "2"});
  group.start_all();
  Client client = group.client_of(0);
  expect_served(client, "value");
  group.process(1).signal(SIGSTOP);
  const auto put = client.put_with("key", "one copy", {.timeout = seconds(20)});
  ASSERT_FALSE(put) << "one replica has it: " << group.configuration();
  EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened) << to_string(put.error());
  EXPECT_EQ(group.in_sync_count(), 1U);
  EXPECT_TRUE(client.get("key")) << "reads go on";
  group.process(1).signal(SIGCONT);
  group.wait_for_in_sync(2);
  expect_served(client, "two copies");
}

}  // namespace
}  // namespace rkv::testing_support
