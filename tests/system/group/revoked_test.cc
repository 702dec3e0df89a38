// A replicated group with users: who was revoked is refused by every later primary too.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/system/group/replica_group.h"

namespace rkv::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// All replicas have the same users: anna, an administrator, and app, who writes.
class GroupRevoked : public ::testing::Test {
 protected:
  GroupRevoked() {
    manage({"add", "anna", "--role", "admin", "--secret-file", secret_file("anna")});
    manage({"add", "app", "--role", "write", "--secret-file", secret_file("app")});
    group_.connect_as("anna", secret("anna"));
  }
  std::string secret_file(const std::string& name) const { return scratch_.path(name); }
  std::string secret(const std::string& name) const {
    return testing::read_file(secret_file(name)).substr(0, 64);
  }
  // kvserver user.
  void manage(std::vector<std::string> words) {
    words.insert(words.begin(), {RKV_KVSERVER, "user"});
    words.insert(words.end(), {"--users", users_});
    const Ended ended = run_program(words);
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  void read_users_again(std::size_t number) {
    group_.process(number).signal(SIGHUP);
    EXPECT_TRUE(group_.process(number).wait_for_output("the users were read again"));
  }
  Ended admin(std::vector<std::string> words) {
    words.insert(words.begin(), {"--user", "anna", "--secret-file", secret_file("anna"),
                                 "--timeout", "30s", "admin"});
    return kvclient(servers(), words);
  }
  std::string servers() const {
    return group_.address(0) + "," + group_.address(1) + "," + group_.address(2);
  }
  // Connects to the replica, which must serve.
  Result<Client> app_at(std::size_t number, const std::string& secret) const {
    return Client::connect({.server = group_.address(number),
                            .user = "app",
                            .secret = secret,
                            .timeout = std::chrono::seconds(10),
                            .transport = test_transport(),
                            .repeat_connect = false});
  }
  void expect_refused(std::size_t number, const std::string& secret) {
    const auto app = app_at(number, secret);
    EXPECT_FALSE(app) << "by n" << number << ", after\n" << group_.logs();
    if (app) return;
    EXPECT_EQ(app.error().code, Code::kUnauthenticated) << to_string(app.error());
  }
  void expect_served(std::size_t number, const std::string& secret) {
    const auto app = app_at(number, secret);
    EXPECT_TRUE(app) << to_string(app.error()) << group_.logs();
  }

  ScratchDirectory scratch_;
  const std::string users_ = scratch_.path("users");
  ReplicaGroup group_{3, {"--users", users_}};
};

TEST_F(GroupRevoked, ARevokedUserIsRefusedByEachLaterPrimary) {
  group_.start_all();
  const std::string old = secret("app");
  const std::size_t first = group_.wait_for_primary();
  auto app = app_at(first, old);
  ASSERT_TRUE(app) << to_string(app.error()) << group_.logs();
  ASSERT_TRUE(app->put("key", "value"));
  const Ended revoked = admin({"revoke", "app"});
  EXPECT_EQ(revoked.status, 0) << revoked.output << group_.logs();
  EXPECT_THAT(revoked.output,
              AllOf(HasSubstr("revoked app, sessions ended: 1"), HasSubstr("of each replica")));
  expect_refused(first, old);
  EXPECT_THAT(group_.configuration(), HasSubstr("\"user\":\"app\""));

  // A fail-over, and one back to the first, which has started again meanwhile.
  group_.kill(first);
  const std::size_t second = group_.wait_for_primary(first);
  expect_refused(second, old);
  group_.start(first);
  group_.wait_for_in_sync(3);
  const Ended moved = admin({"move-primary", fmt::format("n{}", first)});
  EXPECT_EQ(moved.status, 0) << moved.output << group_.logs();
  EXPECT_EQ(group_.wait_for_primary(second), first);
  expect_refused(first, old);
  EXPECT_EQ(group_.client_of(first).get("key")->value, "value");
  group_.wait_for_in_sync(3);

  // All of them at once; the last one in sync starts as the primary.
  for (const std::size_t number : {0U, 1U, 2U})
    group_.kill(number);
  for (const std::size_t number : {0U, 1U, 2U})
    group_.start(number);
  const std::size_t third = group_.wait_for_primary();
  expect_refused(third, old);
  EXPECT_TRUE(group_.process(third).wait_for_output(
      fmt::format("user \"app\" was revoked and stays out, although {} still has its line: remove "
                  "the line, or give it another secret",
                  users_)));

  // Another secret is another matter; the old one stays out although it is put back.
  const std::string line_of_old = testing::read_file(users_);
  manage({"remove", "app"});
  manage({"add", "app", "--role", "write", "--secret-file", secret_file("renewed")});
  read_users_again(third);
  expect_served(third, secret("renewed"));
  expect_refused(third, old);
  group_.wait_for_in_sync(3);
  group_.kill(third);
  const std::size_t fourth = group_.wait_for_primary(third);
  read_users_again(fourth);
  expect_served(fourth, secret("renewed"));
  expect_refused(fourth, old);

  // Until a person takes it off the list.
  testing::write_file(users_, line_of_old);
  group_.process(fourth).signal(SIGHUP);
  EXPECT_TRUE(holds_in_time([&] { return !app_at(fourth, secret("renewed")); }));
  expect_refused(fourth, old);
  std::vector<std::string> forgets = group_.command(fourth);
  forgets.insert(forgets.end(), {"--forget-revoked", "app"});
  const Ended forgotten = run_program(forgets);
  EXPECT_EQ(forgotten.status, 0) << forgotten.output;
  EXPECT_THAT(forgotten.output, HasSubstr("Left on it: 0"));
  EXPECT_TRUE(holds_in_time([&] { return app_at(fourth, old).has_value(); })) << group_.logs();
  EXPECT_THAT(group_.configuration(), Not(HasSubstr("revoked")));
  const Ended again = run_program(forgets);
  EXPECT_EQ(again.status, 5) << again.output;
  EXPECT_THAT(again.output, HasSubstr("has none of user app"));
}

TEST_F(GroupRevoked, WithoutEtcdItHoldsAtThePrimaryAndSaysSo) {
  group_.start_all();
  const std::size_t primary = group_.wait_for_primary();
  group_.etcd().pause(0);
  const Ended revoked = admin({"revoke", "app"});
  EXPECT_EQ(revoked.status, 4) << revoked.output << group_.logs();
  EXPECT_THAT(revoked.output, AllOf(HasSubstr("etcd has not stored that yet"),
                                    HasSubstr("the users file of each replica")));
  expect_refused(primary, secret("app"));
  group_.etcd().resume(0);
  // The primary has kept it in mind.
  EXPECT_TRUE(holds_in_time([&] {
    return group_.configuration().find("\"user\":\"app\"") != std::string::npos;
  })) << group_.configuration()
      << group_.logs();
  EXPECT_EQ(admin({"revoke", "app"}).status, 0);
  const std::size_t now = group_.wait_for_primary();
  group_.kill(now);
  expect_refused(group_.wait_for_primary(now), secret("app"));
}

}  // namespace
}  // namespace rkv::testing_support
