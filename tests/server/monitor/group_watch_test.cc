// The log lines of a replica of a group about its state.
#include "server/monitor/group_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rkv/log.h"

namespace rkv::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GroupWatchTest : public ::testing::Test {
 protected:
  GroupWatchTest() {
    set_log_sink([this](LogLevel, std::string_view text) { lines_.emplace_back(text); });
    status_.configuration = 3;
    status_.primary = "n1";
    status_.primary_address = "h:1";
    status_.members = {{.name = "n1", .address = "h:1", .is_in_sync = true, .is_primary = true},
                       {.name = "n2", .address = "h:2", .is_in_sync = true}};
  }
  ~GroupWatchTest() override { set_log_sink(nullptr); }
  std::vector<std::string> look(Nanos later = 0) {
    now_ += later;
    watch_.look(status_, now_);
    watch_.look(status_, now_);
    return std::exchange(lines_, {});
  }
  void lead() {
    status_.role = GroupStatus::Role::kPrimary;
    status_.is_serving = status_.is_in_sync = true;
    status_.members[1].lag = GroupStatus::Member::Lag{};
  }

  GroupWatch watch_;
  GroupStatus status_;
  Nanos now_ = 100 * kNanosPerSecond;
  std::vector<std::string> lines_;
};

TEST_F(GroupWatchTest, SaysNothingOfAPrimaryThatServes) {
  lead();
  EXPECT_THAT(look(), IsEmpty());
  status_.is_serving = false;
  EXPECT_THAT(look(), IsEmpty());
  EXPECT_THAT(look(GroupWatch::kWorthALine - 1), IsEmpty());
  status_.is_serving = true;
  EXPECT_THAT(look(), IsEmpty()) << "a pause that belongs to leaving out a backup";
}

TEST_F(GroupWatchTest, SaysWhoKeepsAPrimaryFromServing) {
  lead();
  status_.is_serving = false;
  status_.members[1].lag->silent_for = 3 * kNanosPerSecond;
  status_.etcd_silent_for = 1;
  EXPECT_THAT(look(), IsEmpty());
  EXPECT_THAT(look(GroupWatch::kWorthALine),
              ElementsAre(HasSubstr("do not answer: n2; etcd does not answer, so they cannot")));
  EXPECT_THAT(look(kNanosPerSecond), IsEmpty()) << "once";
  status_.is_serving = true;
  EXPECT_THAT(look(), ElementsAre(HasSubstr("served again after 3 s")));
}

TEST_F(GroupWatchTest, SaysThatEtcdStoresNothing) {
  lead();
  status_.is_serving = false;
  status_.etcd_refuses_for = 1;
  EXPECT_THAT(look(), IsEmpty());
  EXPECT_THAT(look(GroupWatch::kWorthALine),
              ElementsAre(HasSubstr("etcd stores no change, so they cannot")));
}

TEST_F(GroupWatchTest, SaysThatOnlyOneCopyIsLeft) {
  lead();
  EXPECT_THAT(look(), IsEmpty());
  status_.members[1].is_in_sync = false;
  EXPECT_THAT(look(), ElementsAre(HasSubstr("the only one in sync")));
  status_.members.pop_back();
  GroupWatch another;
  another.look(status_, now_);
  EXPECT_THAT(lines_, IsEmpty()) << "a group that never had another";
}

TEST_F(GroupWatchTest, SaysWhenABackupIsInSyncAndWhenNoMore) {
  status_.role = GroupStatus::Role::kJoining;
  EXPECT_THAT(look(), IsEmpty());
  status_.role = GroupStatus::Role::kBackup;
  status_.is_in_sync = true;
  EXPECT_THAT(look(), ElementsAre(HasSubstr("backup in sync; the primary is n1 (h:1)")));
  status_.role = GroupStatus::Role::kJoining;
  status_.is_in_sync = false;
  EXPECT_THAT(look(), ElementsAre(HasSubstr("not connected to the primary, n1 (h:1)")));
}

TEST_F(GroupWatchTest, SaysThatTheDiskOfABackupHangs) {
  status_.role = GroupStatus::Role::kJoining;
  status_.disk = GroupStatus::Disk{.hangs = true};
  EXPECT_THAT(look(), ElementsAre(HasSubstr("does not return")));
  status_.disk->hangs = false;
  EXPECT_THAT(look(), ElementsAre(HasSubstr("answers again")));
}

}  // namespace
}  // namespace rkv::server
