// A replica's status of its group, made from a membership and a log of the test.
#include "server/group/replica/group_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rkv::server {
namespace {

using ::testing::HasSubstr;

struct GroupReporterTest : testing::Test {
  static constexpr std::uint64_t kGroup = 7;
  static Replica replica(const std::string& name, std::uint64_t epoch) {
    return {.name = name, .address = name + ":7471", .epoch = epoch};
  }
  static LogPosition at(std::uint64_t version) { return {.term = 1, .version = version}; }

  Nanos now = 1000 * kNanosPerSecond;
  const ReplicationTimes times;
  ReplicaLog log;
  GroupReporter reporter{"g", "a"};
  GroupConfiguration configuration = *founded(kGroup, replica("a", 1), 1);

  GroupStatus describe(Membership& membership) { return reporter.describe(membership, log, now); }
  void append(std::uint64_t version) {
    log.append(at(version), std::make_shared<const std::vector<std::byte>>(100));
  }
  static void connect(Primary& primary, std::uint64_t epoch, const std::string& name, Nanos now) {
    ASSERT_EQ(primary.connected(epoch,
                                {.replica = replica(name, epoch),
                                 .group = kGroup,
                                 .term = 1,
                                 .start = {},
                                 .history = {}},
                                now),
              Primary::Admission::kAccepted);
  }
  static void exchange(Primary& primary, std::uint64_t epoch, LogPosition last, Nanos now) {
    std::uint64_t number = 0;
    while (const auto entries = primary.next(epoch, now))
      number = entries->number;
    ASSERT_NE(number, 0U);
    ASSERT_TRUE(primary.answered(epoch, {.number = number, .last = last}, now));
  }
};

TEST_F(GroupReporterTest, KnowsNothingBeforeAConfigurationIsRead) {
  Membership membership(log, replica("a", 1), {.new_group = kGroup}, times);
  const GroupStatus status = describe(membership);
  EXPECT_EQ(status.role, GroupStatus::Role::kStarting);
  EXPECT_EQ(status.group, "g");
  EXPECT_EQ(status.name, "a");
  EXPECT_TRUE(status.members.empty());
  EXPECT_EQ(reporter.latest()->at, 0) << "nothing was published";
  EXPECT_THAT(standing(status), HasSubstr("not read yet"));
}

TEST_F(GroupReporterTest, APrimaryAloneNeedsNoLease) {
  Membership membership(log, replica("a", 1), {.new_group = kGroup}, times);
  membership.read({.configuration = configuration, .revision = 1}, now);
  const GroupStatus status = describe(membership);
  EXPECT_EQ(status.role, GroupStatus::Role::kPrimary);
  EXPECT_TRUE(status.is_serving);
  EXPECT_FALSE(status.lease_left);
  EXPECT_EQ(status.primary_address, "a:7471");
  EXPECT_EQ(status.group_number, kGroup);
}

TEST_F(GroupReporterTest, APrimaryKnowsTheLagOfEachReplica) {
  configuration = *joined(configuration, replica("b", 2));
  Membership membership(log, replica("a", 1), {.new_group = kGroup}, times);
  membership.read({.configuration = configuration, .revision = 1}, now);
  Primary& primary = *membership.primary();
  EXPECT_EQ(describe(membership).lease_left, Nanos{0}) << "b has answered nothing";
  EXPECT_FALSE(describe(membership).is_serving);
  connect(primary, 2, "b", now);
  connect(primary, 3, "c", now);
  append(10);
  primary.update();
  GroupStatus status = describe(membership);
  now += 300 * kNanosPerMs;
  status = describe(membership);
  ASSERT_EQ(status.members.size(), 3U) << "c is about to become a member";
  EXPECT_TRUE(status.members[0].is_primary);
  EXPECT_FALSE(status.members[0].lag) << "of others only";
  EXPECT_TRUE(status.members[1].is_in_sync);
  EXPECT_FALSE(status.members[2].is_in_sync);
  for (const std::size_t other : {1U, 2U}) {
    ASSERT_TRUE(status.members[other].lag);
    EXPECT_TRUE(status.members[other].lag->is_connected);
    EXPECT_EQ(status.members[other].lag->bytes, 100U);
    EXPECT_EQ(status.members[other].lag->age, 300 * kNanosPerMs);
    EXPECT_EQ(status.members[other].lag->silent_for, 300 * kNanosPerMs);
  }
  EXPECT_FALSE(status.members[2].lag->is_unreachable) << "it is not known yet";
  primary.set_reachable(3, false);
  exchange(primary, 2, at(10), now);
  status = describe(membership);
  EXPECT_TRUE(status.members[2].lag->is_unreachable);
  EXPECT_EQ(status.members[1].lag->bytes, 0U);
  EXPECT_EQ(status.members[1].lag->age, 0);
  EXPECT_EQ(status.members[2].lag->bytes, 100U);
  EXPECT_EQ(status.marks.replicated, 10U);
  EXPECT_EQ(status.lease_left, times.lease_of_primary());
  EXPECT_TRUE(status.is_serving || !membership.acts(now));
}

TEST_F(GroupReporterTest, ABackupIsInSyncOrJoins) {
  configuration = *joined(configuration, replica("b", 2));
  Membership joiner(log, replica("c", 3), {.new_group = 8}, times);
  joiner.read({.configuration = configuration, .revision = 1}, now);
  GroupStatus status = describe(joiner);
  EXPECT_EQ(status.role, GroupStatus::Role::kJoining);
  EXPECT_THAT(standing(status), HasSubstr("not connected to the primary, a (a:7471)"));
  Membership backup(log, replica("b", 2), {.new_group = 8}, times);
  backup.read({.configuration = configuration, .revision = 1}, now);
  status = describe(backup);
  EXPECT_EQ(status.role, GroupStatus::Role::kBackup);
  EXPECT_EQ(standing(status), "backup in sync; the primary is a (a:7471), which is not connected");
  status.is_connected = true;
  EXPECT_EQ(standing(status), "backup in sync; the primary is a (a:7471)");
  EXPECT_FALSE(status.is_serving);
}

TEST_F(GroupReporterTest, CountsTheTermsThatBegin) {
  configuration = *joined(configuration, replica("b", 2));
  configuration = *joined(configuration, replica("c", 3));
  Membership membership(log, replica("c", 3), {.new_group = 8}, times);
  membership.read({.configuration = configuration, .revision = 1}, now);
  EXPECT_EQ(describe(membership).terms, 0U) << "it began before this process";
  now += kNanosPerSecond;
  EXPECT_EQ(describe(membership).term_for, kNanosPerSecond);
  configuration = *taken_over(configuration, replica("b", 2), 1);
  membership.read({.configuration = configuration, .revision = 2}, now);
  const GroupStatus status = describe(membership);
  EXPECT_EQ(status.terms, 1U);
  EXPECT_EQ(status.term_for, 0);
  EXPECT_EQ(status.term, configuration.term);
  EXPECT_EQ(status.primary, "b");
  EXPECT_EQ(status.configuration_text, to_text(configuration));
}

TEST_F(GroupReporterTest, IsDueAFewTimesASecond) {
  Membership membership(log, replica("a", 1), {.new_group = kGroup}, times);
  EXPECT_TRUE(reporter.is_due(now));
  reporter.publish(describe(membership));
  EXPECT_EQ(reporter.latest()->at, now);
  EXPECT_FALSE(reporter.is_due(now + GroupReporter::kInterval - 1));
  EXPECT_TRUE(reporter.is_due(now + GroupReporter::kInterval));
}

TEST_F(GroupReporterTest, CountsCopies) {
  GroupStatus status;
  reporter.copy_sent(true);
  reporter.copy_sent(false);
  reporter.copy_sent(false);
  reporter.copy_not_received();
  reporter.add_copies(status, nullptr, nullptr);
  EXPECT_EQ(status.sent.done, 1U);
  EXPECT_EQ(status.sent.failed, 2U);
  EXPECT_EQ(status.received.failed, 1U);
}

}  // namespace
}  // namespace rkv::server
