#include "server/group/replica/group_revocations.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace rkv::server {
namespace {

RevokedSecret secret_of(const std::string& user) {
  return {.user = user};
}

class GroupRevocationsTest : public ::testing::Test {
 protected:
  // `told` gets the administrator's answer; nullopt: there is none yet.
  void revoke(const std::vector<RevokedSecret>& secrets, std::optional<Status>& told) {
    revocations_.begin(primary_, secrets, [&told](const Status& status) { told = status; }, now_);
  }
  void step() { revocations_.step(primary_, now_); }

  const Replica replica_{.name = "a", .address = "h:1", .epoch = 1};
  ReplicaLog log_{TermHistory{}};
  Nanos now_ = 1000 * kNanosPerSecond;
  Primary primary_{log_, replica_, *founded(7, replica_, 1), 0, {}, now_};
  GroupRevocations revocations_;
};

TEST_F(GroupRevocationsTest, AreDoneWhenTheConfigurationHasThem) {
  std::optional<Status> first;
  std::optional<Status> second;
  revoke({secret_of("app")}, first);
  revoke({secret_of("web"), secret_of("app")}, second);
  step();
  EXPECT_FALSE(first || second);
  primary_.configuration_is(*with_revoked(primary_.configuration(), std::vector{secret_of("app")}),
                            now_);
  step();
  ASSERT_TRUE(first);
  EXPECT_TRUE(*first);
  EXPECT_FALSE(second);
  primary_.configuration_is(*primary_.begin_change(now_), now_);
  step();
  ASSERT_TRUE(second);
  EXPECT_TRUE(*second);
  std::optional<Status> again;
  revoke({secret_of("app")}, again);
  step();
  ASSERT_TRUE(again);
  EXPECT_TRUE(*again);
}

TEST_F(GroupRevocationsTest, AreToldThatEtcdDoesNotHaveThemInTime) {
  std::optional<Status> told;
  revoke({secret_of("app")}, told);
  now_ += GroupRevocations::kPatience - 1;
  step();
  EXPECT_FALSE(told);
  now_ += 1;
  step();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->error().code, Code::kIo);
  EXPECT_LE(std::string(told->error().text).size(), 192U) << "a refusal has no room for more";
  told.reset();
  now_ += GroupRevocations::kPatience;
  step();
  EXPECT_FALSE(told) << "once";
  EXPECT_EQ(primary_.begin_change(now_)->revoked, std::vector{secret_of("app")})
      << "it is wanted all the same";
}

TEST_F(GroupRevocationsTest, AreToldThatTheListIsFull) {
  std::vector<RevokedSecret> secrets;
  for (std::size_t i = 0; i < kMostRevoked; ++i)
    secrets.push_back(secret_of("u" + std::to_string(i)));
  std::optional<Status> all;
  revoke(secrets, all);
  std::optional<Status> more;
  revoke({secret_of("app")}, more);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->error().code, Code::kConflict);
  EXPECT_FALSE(all);
}

}  // namespace
}  // namespace rkv::server
