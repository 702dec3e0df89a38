#include "server/admission/revocations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rkv::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kWorkers = 2;

User user_of(const std::string& name, char digit, Role role = Role::kWrite) {
  const Secret secret = *Secret::parse(std::string(64, digit));
  return {.name = name, .role = role, .keys = ClientKeys::of(secret).stored};
}
std::shared_ptr<const Users> users_of(const std::vector<User>& all) {
  std::string text;
  for (const User& user : all)
    text += Users::line_of(user) + "\n";
  std::string problem;
  return *Users::parse(text, "users", &problem);
}

class RevocationsTest : public ::testing::Test {
 protected:
  // Whether the workers, and those who check proofs, know the user.
  bool is_admitted(const User& user) {
    const bool known = told_.back()->has(user);
    const ClientKeys keys = ClientKeys::of(*Secret::parse(std::string(64, '1')));
    EXPECT_EQ(proves(user.name, keys), known && user.keys == keys.stored);
    return known;
  }
  bool proves(const std::string& name, const ClientKeys& keys) {
    const Route route{.called = "192.0.2.1:7471", .origin = "192.0.2.9"};
    ConnectRequest request{.client_nonce = ++nonce_, .user = number_of_user(name)};
    const auto asked = authentication_->check(request, route, kNow);
    const auto* const challenged = std::get_if<Authentication::Challenged>(&asked);
    if (challenged == nullptr) return false;
    request.stamp = challenged->challenge.stamp;
    request.proof = make_proof(keys, {.stamp = request.stamp,
                                      .cookie = challenged->challenge.cookie,
                                      .user = request.user,
                                      .nonce = request.client_nonce,
                                      .server = route.called});
    return std::holds_alternative<Authentication::Proved>(
        authentication_->check(request, route, kNow));
  }
  Error refused(std::string_view user, std::string_view by) {
    const auto revoked = revocations_.revoke(user, by);
    EXPECT_FALSE(revoked);
    return revoked ? Error{} : revoked.error();
  }

  static constexpr Nanos kNow = 1000 * kNanosPerSecond;
  const User anna_ = user_of("anna", '1', Role::kAdmin);
  const User bob_ = user_of("bob", '1');
  const std::shared_ptr<const Users> file_ = users_of({anna_, bob_});
  std::shared_ptr<Authentication> authentication_ = std::make_shared<Authentication>(file_);
  std::vector<std::shared_ptr<const Users>> told_ = {file_};
  std::shared_ptr<Revocation> begun_;
  int finished_ = 0;
  std::uint64_t nonce_ = 0;
  Revocations revocations_{
      file_, authentication_,
      [this](const std::shared_ptr<const Users>& users, std::string_view user) {
        told_.push_back(users);
        begun_ = user.empty()
                     ? nullptr
                     : std::make_shared<Revocation>(user, kWorkers, [this] { ++finished_; });
        return begun_;
      }};
};

TEST_F(RevocationsTest, ARevokedUserIsOutAndOthersAreNot) {
  EXPECT_TRUE(is_admitted(bob_));
  const auto revoked = revocations_.revoke("bob", "anna");
  ASSERT_TRUE(revoked);
  EXPECT_FALSE(is_admitted(bob_));
  EXPECT_TRUE(is_admitted(anna_));
}

TEST_F(RevocationsTest, IsDoneWhenTheLastWorkerHasEndedItsSessions) {
  const auto revoked = revocations_.revoke("bob", "anna");
  ASSERT_TRUE(revoked);
  EXPECT_FALSE((*revoked)->done());
  begun_->ended(2);
  EXPECT_FALSE((*revoked)->done());
  EXPECT_EQ(finished_, 0);
  begun_->ended(1);
  EXPECT_TRUE((*revoked)->done());
  EXPECT_EQ((*revoked)->sessions(), 3U);
  EXPECT_EQ(finished_, 1);
}

TEST_F(RevocationsTest, WhoIsNotThereAndWhoAsksAreRefused) {
  EXPECT_EQ(refused("carol", "anna").code, Code::kNotFound);
  const Error itself = refused("anna", "anna");
  EXPECT_EQ(itself.code, Code::kInvalidArgument);
  EXPECT_THAT(itself.text, HasSubstr("cannot revoke itself"));
  EXPECT_TRUE(is_admitted(anna_));
  EXPECT_EQ(told_.size(), 1U) << "nobody was told anything";
}

TEST_F(RevocationsTest, TwiceIsNoError) {
  ASSERT_TRUE(revocations_.revoke("bob", "anna"));
  ASSERT_TRUE(revocations_.revoke("bob", "anna"));
  EXPECT_FALSE(is_admitted(bob_));
}

// REVOKE-2
TEST_F(RevocationsTest, AFileThatStillHasTheUserDoesNotLetItIn) {
  ASSERT_TRUE(revocations_.revoke("bob", "anna"));
  EXPECT_THAT(revocations_.replace(users_of({anna_, bob_})), ElementsAre("bob"));
  EXPECT_FALSE(is_admitted(bob_));
  EXPECT_EQ(begun_, nullptr);
  User promoted = bob_;
  promoted.role = Role::kAdmin;
  EXPECT_THAT(revocations_.replace(users_of({anna_, promoted})), ElementsAre("bob"))
      << "another role does not make another user";
  EXPECT_FALSE(is_admitted(promoted));
}

TEST_F(RevocationsTest, AFileWithoutTheUserEndsTheRevocation) {
  ASSERT_TRUE(revocations_.revoke("bob", "anna"));
  EXPECT_THAT(revocations_.replace(users_of({anna_})), IsEmpty());
  EXPECT_FALSE(is_admitted(bob_));
  EXPECT_THAT(revocations_.replace(users_of({anna_, bob_})), IsEmpty());
  EXPECT_TRUE(is_admitted(bob_)) << "the operator has put it back";
}

TEST_F(RevocationsTest, ANewSecretLetsTheUserIn) {
  ASSERT_TRUE(revocations_.revoke("bob", "anna"));
  const User changed = user_of("bob", '2');
  EXPECT_THAT(revocations_.replace(users_of({anna_, changed})), IsEmpty());
  EXPECT_TRUE(is_admitted(changed));
  EXPECT_FALSE(is_admitted(bob_));
}

}  // namespace
}  // namespace rkv::server
