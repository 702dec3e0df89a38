#include "server/clients/admission/revocations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
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
  Revocations::EndSessions end_sessions(bool in_group) {
    return [this, in_group](const std::shared_ptr<const Users>& users, std::string_view user) {
      told_.push_back(users);
      begun_ = user.empty() ? nullptr
                            : std::make_shared<Revocation>(
                                  user, kWorkers, [this] { ++finished_; }, in_group);
      return begun_;
    };
  }
  Revocations revocations_{file_, authentication_, end_sessions(false)};
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

// The file says that both secrets are of the same user.
TEST_F(RevocationsTest, ASecondSecretBesideARevokedOneLetsNobodyIn) {
  ASSERT_TRUE(revocations_.revoke("bob", "anna"));
  const User renewed = user_of("bob", '2');
  EXPECT_THAT(revocations_.replace(users_of({anna_, bob_, renewed})), ElementsAre("bob"));
  EXPECT_FALSE(is_admitted(renewed));
  EXPECT_THAT(revocations_.replace(users_of({anna_, renewed})), IsEmpty());
  EXPECT_TRUE(is_admitted(renewed));
}

TEST_F(RevocationsTest, ANewSecretLetsTheUserIn) {
  ASSERT_TRUE(revocations_.revoke("bob", "anna"));
  const User changed = user_of("bob", '2');
  EXPECT_THAT(revocations_.replace(users_of({anna_, changed})), IsEmpty());
  EXPECT_TRUE(is_admitted(changed));
  EXPECT_FALSE(is_admitted(bob_));
}

class RevocationsInGroup : public RevocationsTest {
 protected:
  std::vector<RevokedSecret> secrets_;
  std::function<void(const Status&)> stored_;
  const RevokedSecret of_bob_ = RevokedSecret::of("bob", bob_.keys);
  Revocations in_group_{
      file_, authentication_, end_sessions(true),
      [this](std::vector<RevokedSecret> secrets, std::function<void(const Status&)> done) {
        secrets_ = std::move(secrets);
        stored_ = std::move(done);
      }};
};

TEST_F(RevocationsInGroup, ARevocationIsDoneWhenTheGroupHasIt) {
  const auto revoked = in_group_.revoke("bob", "anna");
  ASSERT_TRUE(revoked);
  EXPECT_FALSE(is_admitted(bob_)) << "at once";
  EXPECT_THAT(secrets_, ElementsAre(of_bob_));
  begun_->ended(1);
  begun_->ended(1);
  EXPECT_FALSE((*revoked)->done());
  stored_({});
  EXPECT_TRUE((*revoked)->done());
  EXPECT_TRUE((*revoked)->status());
  EXPECT_EQ((*revoked)->sessions(), 2U);
  EXPECT_EQ(finished_, 1);
}

TEST_F(RevocationsInGroup, BothSecretsOfAUserAreRevoked) {
  const User renewed = user_of("bob", '2');
  EXPECT_THAT(in_group_.replace(users_of({anna_, bob_, renewed})), IsEmpty());
  ASSERT_TRUE(in_group_.revoke("bob", "anna"));
  EXPECT_THAT(secrets_, ElementsAre(of_bob_, RevokedSecret::of("bob", renewed.keys)));
}

// It holds here although the group does not have it, and whatever list is read meanwhile.
TEST_F(RevocationsInGroup, WhatTheGroupDoesNotHaveYetHoldsHere) {
  const auto revoked = in_group_.revoke("bob", "anna");
  ASSERT_TRUE(revoked);
  begun_->ended(0);
  begun_->ended(0);
  stored_(fail(Code::kIo, "etcd has not stored it"));
  ASSERT_TRUE((*revoked)->done());
  EXPECT_EQ((*revoked)->status().error().code, Code::kIo);
  EXPECT_THAT(in_group_.follow({}), ElementsAre("bob"));
  EXPECT_FALSE(is_admitted(bob_));
  EXPECT_THAT(in_group_.replace(users_of({anna_})), IsEmpty());
  EXPECT_THAT(in_group_.replace(users_of({anna_, bob_})), ElementsAre("bob"));
  EXPECT_FALSE(is_admitted(bob_)) << "the group will have it, whatever the file was meanwhile";
}

// REVOKE-3
TEST_F(RevocationsInGroup, TheGroupsListShutsOutWhatThisProcessHasNotRevoked) {
  EXPECT_TRUE(is_admitted(bob_));
  EXPECT_THAT(in_group_.follow({of_bob_}), ElementsAre("bob"));
  EXPECT_FALSE(is_admitted(bob_));
  EXPECT_TRUE(is_admitted(anna_));
  EXPECT_THAT(in_group_.replace(users_of({anna_})), IsEmpty());
  EXPECT_THAT(in_group_.replace(users_of({anna_, bob_})), ElementsAre("bob"));
  EXPECT_FALSE(is_admitted(bob_)) << "a file ends no revocation of the group";
  const User changed = user_of("bob", '2');
  EXPECT_THAT(in_group_.replace(users_of({anna_, changed})), IsEmpty());
  EXPECT_TRUE(is_admitted(changed));
}

TEST_F(RevocationsInGroup, WhatIsTakenOffTheListIsServedAgain) {
  ASSERT_TRUE(in_group_.revoke("bob", "anna"));
  EXPECT_THAT(in_group_.follow({of_bob_}), ElementsAre("bob"));
  EXPECT_FALSE(is_admitted(bob_));
  EXPECT_THAT(in_group_.follow({}), IsEmpty());
  EXPECT_TRUE(is_admitted(bob_));
}

TEST_F(RevocationsInGroup, AListWithStrangersShutsOutNobody) {
  EXPECT_THAT(in_group_.follow({RevokedSecret::of("anna", user_of("anna", '7').keys),
                                RevokedSecret::of("carol", bob_.keys)}),
              IsEmpty());
  EXPECT_TRUE(is_admitted(anna_));
  EXPECT_TRUE(is_admitted(bob_));
}

}  // namespace
}  // namespace rkv::server
