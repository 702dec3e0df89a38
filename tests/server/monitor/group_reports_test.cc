// The reports of a replica of a group in every state, without a network.
#include "server/monitor/group_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/monitor/monitor.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using GroupRole = GroupStatus::Role;

class GroupReportsTest : public ::testing::Test {
 protected:
  GroupReportsTest() {
    group_.group = "g1";
    group_.name = "n1";
    group_.configuration = 4;
    group_.term = 12;
    group_.at = 1;
    group_.primary = "n1";
    group_.primary_address = "h1:7471";
    group_.members = {
        {.name = "n1", .address = "h1:7471", .is_in_sync = true, .is_primary = true},
        {.name = "n2", .address = "h2:7471", .is_in_sync = true},
        {.name = "n3", .address = "h3:7471"},
    };
    clock_.advance(1);
    monitor_.in_group([this] { return std::make_shared<const GroupStatus>(group_); });
  }
  void serve() {
    group_.role = GroupRole::kPrimary;
    group_.is_serving = group_.is_in_sync = true;
    group_.lease_left = kNanosPerSecond / 2;
    group_.members[1].lag = {.is_connected = true, .bytes = 300, .age = 2 * kNanosPerSecond};
    monitor_.ready({.facts =
                        [this] {
                          ServerFacts facts;
                          facts.log.persistent = true;
                          facts.group = std::make_shared<const GroupStatus>(group_);
                          return facts;
                        },
                    .log = [] { return LogFacts{}; },
                    .workers = [] { return std::vector<WorkerFacts>(); }});
  }
  void follow(GroupRole role) {
    group_.name = "n2";
    group_.role = role;
    group_.is_in_sync = role == GroupRole::kBackup;
    group_.is_connected = true;
    group_.disk = GroupStatus::Disk{};
  }
  std::string body(const char* path) {
    clock_.advance(Monitor::kKept);
    group_.at = clock_.now();
    return monitor_.answer(path).body;
  }
  unsigned status(const char* path) {
    clock_.advance(Monitor::kKept);
    return monitor_.answer(path).status;
  }
  // 503 and 0 in the metrics, or 200 and 1.
  void expect_ready(bool ready) {
    EXPECT_EQ(status("/readyz"), ready ? 200U : 503U);
    EXPECT_THAT(body("/metrics"), HasSubstr(ready ? "kvserver_ready 1\n" : "kvserver_ready 0\n"));
    EXPECT_EQ(json::parse(body("/status")).at("ready"), ready);
  }

  ManualClock clock_;
  GroupStatus group_;
  Monitor monitor_{clock_};
};

TEST_F(GroupReportsTest, AReplicaThatStartsIsNotReady) {
  group_.configuration = 0;
  expect_ready(false);
  EXPECT_THAT(body("/readyz"), HasSubstr("the group's configuration is not read yet"));
  group_.etcd_silent_for = 7 * kNanosPerSecond;
  EXPECT_EQ(body("/readyz"),
            "backup not in sync: etcd has not answered since the start\n"
            "etcd has not answered for 7 s: no replica can be replaced\n");
  group_.etcd_has_lost_data = true;
  EXPECT_THAT(body("/readyz"), HasSubstr("etcd has lost the group's configuration"));
}

TEST_F(GroupReportsTest, ABackupIsReadyWhenItIsInSync) {
  follow(GroupRole::kJoining);
  expect_ready(false);
  EXPECT_EQ(body("/readyz"), "backup not in sync: it catches up with the primary's log\n");
  group_.received = {.replica = "n2", .bytes = 5, .total_bytes = 20};
  EXPECT_EQ(body("/readyz"),
            "backup not in sync: it receives a copy of the database: 5 of 20 bytes\n");
  follow(GroupRole::kBackup);
  expect_ready(true);
  EXPECT_EQ(body("/readyz"), "backup in sync; the primary is n1 (h1:7471)\n");
  EXPECT_EQ(status("/healthz"), 200U);
  const json group = json::parse(body("/status")).at("group");
  EXPECT_EQ(group.at("role"), "backup");
  EXPECT_EQ(group.at("in_place"), true);
  EXPECT_EQ(group.at("disk_state"), "ok");
  EXPECT_EQ(group.at("lease_seconds"), nullptr);
  const std::string metrics = body("/metrics");
  for (const char* line :
       {"kvserver_group_role{group=\"g1\",role=\"backup\"} 1\n",
        "kvserver_group_role{group=\"g1\",role=\"primary\"} 0\n",
        "kvserver_group_in_sync{group=\"g1\"} 1\n", "kvserver_group_serving{group=\"g1\"} 0\n",
        "kvserver_group_members_in_sync{group=\"g1\"} 2\n",
        "kvserver_disk_state{state=\"ok\"} 1\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics, Not(HasSubstr("kvserver_group_member_"))) << "the primary knows";
  group_.is_connected = false;  // it may be dead, and etcd keeps this one from taking over
  group_.etcd_refuses_for = 5 * kNanosPerSecond;
  expect_ready(false);
  EXPECT_EQ(
      body("/readyz"),
      "backup in sync; the primary is n1 (h1:7471), which is not connected\n"
      "etcd answers, but has stored no change for 5 s: no replica can be replaced: its log and "
      "etcdctl alarm list say why\n");
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_group_etcd_refuses_seconds{group=\"g1\"} 5\n"));
  EXPECT_EQ(json::parse(body("/status")).at("group").at("etcd_refuses_seconds"), 5);
  group_.etcd_refuses_for = 0;
  group_.primary.clear();
  expect_ready(false);
  EXPECT_EQ(body("/readyz"), "backup in sync, but the group has no primary\n");
}

TEST_F(GroupReportsTest, ABackupSaysWhatKeepsItFromBeingInSync) {
  follow(GroupRole::kJoining);
  group_.disk->hangs = true;
  EXPECT_EQ(body("/readyz"), "backup not in sync: its disk is hung\n");
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_disk_state{state=\"hung\"} 1\n"));
  group_.disk = GroupStatus::Disk{.state = DiskState::kFull};
  EXPECT_EQ(body("/readyz"), "backup not in sync: its disk is full\n");
  group_.disk = GroupStatus::Disk{};
  group_.is_connected = false;
  EXPECT_EQ(body("/readyz"),
            "backup not in sync: it is not connected to the primary, n1 (h1:7471)\n");
  group_.role = GroupRole::kEnded;
  group_.why_ended = "another replica is the primary";
  expect_ready(false);
  EXPECT_EQ(body("/readyz"),
            "it has ended its part in the group: another replica is the primary\n");
}

TEST_F(GroupReportsTest, APrimaryThatIsBelievedIsReady) {
  monitor_.doing("becoming the primary of the group");
  group_.role = GroupRole::kPrimary;
  expect_ready(false);
  EXPECT_EQ(body("/readyz"), "starting: becoming the primary of the group\n");
  serve();
  expect_ready(true);
  EXPECT_EQ(body("/readyz"),
            "ready\nprimary of group g1 in term 12, 2 of 3 replicas in sync\n"
            "n3 (h3:7471) is not in sync: not connected\ndisk: ok\n");
  EXPECT_EQ(json::parse(body("/status")).at("group").at("lease_seconds"), 0.5);
  const std::string metrics = body("/metrics");
  for (const char* line : {"kvserver_group_serving{group=\"g1\"} 1\n",
                           "kvserver_group_lease_seconds{group=\"g1\"} 0.5\n",
                           "kvserver_group_member_in_sync{group=\"g1\",member=\"n2\"} 1\n",
                           "kvserver_group_member_in_sync{group=\"g1\",member=\"n3\"} 0\n",
                           "kvserver_group_member_connected{group=\"g1\",member=\"n3\"} 0\n",
                           "kvserver_group_member_lag_bytes{group=\"g1\",member=\"n2\"} 300\n",
                           "kvserver_group_member_lag_seconds{group=\"g1\",member=\"n2\"} 2\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics, Not(HasSubstr("member=\"n1\""))) << "of others only";
}

TEST_F(GroupReportsTest, APrimaryNamesBackupsThatItCannotReach) {
  serve();
  group_.members[1].lag->is_unreachable = true;
  group_.members[2].lag = {.is_connected = true, .is_unreachable = true};
  expect_ready(true);
  EXPECT_EQ(body("/readyz"),
            "ready\nprimary of group g1 in term 12, 2 of 3 replicas in sync\n"
            "n2 cannot be reached at h2:7472: open this port to the other replicas\n"
            "n3 (h3:7471) is not in sync yet\n"
            "n3 cannot be reached at h3:7472: open this port to the other replicas\n"
            "disk: ok\n");
  EXPECT_EQ(json::parse(body("/status")).at("group").at("members").at(2).at("unreachable"), true);
}

TEST_F(GroupReportsTest, APrimaryWithoutALeaseIsNotReady) {
  serve();
  group_.is_serving = false;
  group_.etcd_silent_for = 30 * kNanosPerSecond;
  expect_ready(false);
  EXPECT_EQ(
      body("/readyz"),
      "primary of group g1 in term 12, 2 of 3 replicas in sync, but it has no lease: replicas "
      "in sync do not answer, and without etcd they cannot be left out\n"
      "n3 (h3:7471) is not in sync: not connected\n"
      "etcd has not answered for 30 s: no replica can be replaced\n"
      "disk: ok\n");
  group_.members[1].is_in_sync = false;
  EXPECT_EQ(
      body("/readyz"),
      "primary of group g1 in term 12, 1 of 3 replicas in sync, but it has no lease: it is alone "
      "in sync, and etcd does not confirm that it is still the primary\n"
      "n2 (h2:7471) is not in sync yet\n"
      "n3 (h3:7471) is not in sync: not connected\n"
      "only one copy of the data\n"
      "etcd has not answered for 30 s: no replica can be replaced\n"
      "disk: ok\n");
}

TEST_F(GroupReportsTest, AReplicatorThatStandsStillIsNotHealthy) {
  follow(GroupRole::kBackup);
  group_.at = clock_.now();
  clock_.advance(kReplicatorStuckAfter - 1);
  EXPECT_EQ(monitor_.answer("/healthz").status, 200U);
  clock_.advance(1);
  EXPECT_EQ(monitor_.answer("/healthz").status, 503U);
  EXPECT_EQ(monitor_.answer("/healthz").body, "the replicator's thread is stuck\n");
  monitor_.stopping();
  EXPECT_EQ(monitor_.answer("/healthz").status, 200U) << "it has ended";
  EXPECT_EQ(monitor_.answer("/readyz").body, "stopping\n");
}

TEST_F(GroupReportsTest, NamesComeOutOfJsonAsTheyAre) {
  group_.primary_address = "\"\xff";
  follow(GroupRole::kBackup);
  EXPECT_TRUE(json::accept(body("/status")));
}

TEST_F(GroupReportsTest, AServerOfNoGroupSaysNothingOfGroups) {
  Monitor alone(clock_);
  EXPECT_THAT(alone.answer("/metrics").body, Not(HasSubstr("kvserver_group_")));
  EXPECT_FALSE(json::parse(alone.answer("/status").body).contains("group"));
}

}  // namespace
}  // namespace rkv::server
