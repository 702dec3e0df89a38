#include "server/admission/authentication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rkv::server {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kNow = 1000 * kNanosPerSecond;
constexpr const char* kHere = "192.0.2.1:7471";

class AuthenticationTest : public ::testing::Test {
 protected:
  static ClientKeys keys_of(char digit) {
    return ClientKeys::of(*Secret::parse(std::string(64, digit)));
  }
  static std::shared_ptr<const Users> users(const std::vector<User>& all) {
    std::string text;
    for (const User& user : all)
      text += Users::line_of(user) + "\n";
    std::string problem;
    return *Users::parse(text, "users", &problem);
  }
  static User anna() { return {.name = "anna", .role = Role::kWrite, .keys = keys_of('1').stored}; }
  static User bob() { return {.name = "bob", .role = Role::kRead, .keys = keys_of('2').stored}; }

  // A request with the proof of a client that was challenged at `at` under `called`.
  ConnectRequest proved(const std::string& name, const ClientKeys& keys, Nanos at = kNow,
                        std::string_view called = kHere) {
    ConnectRequest request{.credits_wanted = 4,
                           .session_to_resume = 3,
                           .client_nonce = ++nonce_,
                           .user = number_of_user(name)};
    const auto answer = authentication_.check(request, called, at);
    const auto* const challenged = std::get_if<Authentication::Challenged>(&answer);
    EXPECT_NE(challenged, nullptr);
    if (challenged == nullptr) return request;
    request.stamp = challenged->challenge.stamp;
    request.proof = make_proof(keys, {.stamp = request.stamp,
                                      .cookie = challenged->challenge.cookie,
                                      .user = request.user,
                                      .nonce = request.client_nonce,
                                      .session_to_resume = request.session_to_resume,
                                      .credits_wanted = request.credits_wanted,
                                      .server = called});
    return request;
  }
  Authentication::Answer check(const ConnectRequest& request, Nanos now = kNow,
                               std::string_view called = kHere) {
    return authentication_.check(request, called, now);
  }
  // The name of the user that the request proves; "" if it proves none.
  std::string who(const ConnectRequest& request, Nanos now = kNow,
                  std::string_view called = kHere) {
    const auto answer = check(request, now, called);
    const auto* const proved = std::get_if<Authentication::Proved>(&answer);
    return proved == nullptr ? "" : proved->user->name;
  }
  static Authentication::Refused refused(const Authentication::Answer& answer) {
    const auto* const refused = std::get_if<Authentication::Refused>(&answer);
    EXPECT_NE(refused, nullptr);
    return refused == nullptr ? Authentication::Refused{} : *refused;
  }
  static bool is_challenge(const Authentication::Answer& answer) {
    return std::holds_alternative<Authentication::Challenged>(answer);
  }

  Authentication authentication_{users({anna(), bob()}), 3};
  std::uint64_t nonce_ = 0;
};

constexpr const char* kWrong = "the user is unknown or the secret is wrong";

TEST_F(AuthenticationTest, AUserWithItsSecretIsThatUser) {
  EXPECT_EQ(who(proved("anna", keys_of('1'))), "anna");
  EXPECT_EQ(who(proved("bob", keys_of('2'))), "bob");
}

TEST_F(AuthenticationTest, TheClaimIsWhatTheClientHasProved) {
  const auto request = proved("anna", keys_of('1'));
  const auto answer = check(request);
  const Claim& claim = std::get<Authentication::Proved>(answer).claim;
  EXPECT_TRUE(is_proved(anna().keys, claim, request.proof));
  EXPECT_EQ(claim.server, kHere);
}

TEST_F(AuthenticationTest, AWrongSecretAndAnUnknownUserAreRefusedAlike) {
  const auto wrong = refused(check(proved("anna", keys_of('2'))));
  const auto unknown = refused(check(proved("carol", keys_of('2'))));
  for (const auto& one : {wrong, unknown}) {
    EXPECT_EQ(one.code, Code::kUnauthenticated);
    EXPECT_STREQ(one.text, kWrong);
    EXPECT_TRUE(one.offends);
  }
}

TEST_F(AuthenticationTest, AClientWithoutAUserIsRefused) {
  const auto answer = refused(check({.credits_wanted = 4, .name = "somebody"}));
  EXPECT_EQ(answer.code, Code::kUnauthenticated);
  EXPECT_THAT(answer.text, HasSubstr("--user"));
  EXPECT_FALSE(answer.offends);
}

TEST_F(AuthenticationTest, AProofIsGoodOnce) {
  const auto request = proved("anna", keys_of('1'));
  EXPECT_EQ(who(request), "anna");
  for (const Nanos later : {Nanos{0}, kNanosPerSecond, Challenges::kLife}) {
    const auto again = refused(check(request, kNow + later));
    EXPECT_THAT(again.text, HasSubstr("used before"));
    EXPECT_TRUE(again.offends);
  }
  EXPECT_TRUE(is_challenge(check(request, kNow + Challenges::kLife + kNanosPerMs)));
}

TEST_F(AuthenticationTest, AProofIsOfOneRequestOnly) {
  const auto request = proved("anna", keys_of('1'));
  std::vector<ConnectRequest> others(5, request);
  others[0].credits_wanted = 5;
  others[1].session_to_resume = 4;
  others[2].client_nonce = 99;
  others[3].stamp -= 1;
  others[4].user = number_of_user("bob");
  for (const ConnectRequest& other : others)
    EXPECT_STREQ(refused(check(other)).text, kWrong);
  EXPECT_EQ(who(request), "anna") << "none of these has used it up";
}

// A false server that was called under its own address cannot pass the proof on.
TEST_F(AuthenticationTest, AProofForAnotherAddressIsWrong) {
  const auto request = proved("anna", keys_of('1'), kNow, "192.0.2.66:7471");
  EXPECT_STREQ(refused(check(request)).text, kWrong);
  EXPECT_EQ(who(request, kNow, "192.0.2.66:7471"), "anna");
}

TEST_F(AuthenticationTest, AStampIsGoodForItsLife) {
  EXPECT_EQ(who(proved("anna", keys_of('1')), kNow + Challenges::kLife), "anna");
  const auto late = proved("anna", keys_of('1'));
  EXPECT_TRUE(is_challenge(check(late, kNow + Challenges::kLife + kNanosPerMs)));
  auto ahead = proved("anna", keys_of('1'));
  EXPECT_TRUE(is_challenge(check(ahead, kNow - kNanosPerMs))) << "from the future";
  ahead.stamp = ~std::uint64_t{0};
  EXPECT_TRUE(is_challenge(check(ahead)));
}

// CHALLENGE-1: the challenge of another start, whose key is another one.
TEST_F(AuthenticationTest, AChallengeIsOfOneStartOfTheServer) {
  const auto request = proved("anna", keys_of('1'));
  Authentication restarted(users({anna()}));
  EXPECT_STREQ(refused(restarted.check(request, kHere, kNow)).text, kWrong);
}

// CHALLENGE-2: with 3 proofs remembered no further one is accepted before one of them is old.
TEST_F(AuthenticationTest, NoProofIsAcceptedThatCannotBeRemembered) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(who(proved("anna", keys_of('1'))), "anna");
  const auto full = refused(check(proved("anna", keys_of('1'))));
  EXPECT_EQ(full.code, Code::kBusy);
  EXPECT_FALSE(full.offends);
  EXPECT_STREQ(refused(check(proved("anna", keys_of('2')))).text, kWrong);
  const Nanos later = kNow + 3 * Challenges::kLife;
  EXPECT_EQ(who(proved("anna", keys_of('1'), later), later), "anna");
}

TEST_F(AuthenticationTest, WrongProofsTakeNoRoom) {
  for (int i = 0; i < 10; ++i)
    EXPECT_STREQ(refused(check(proved("anna", keys_of('2')))).text, kWrong);
  EXPECT_EQ(who(proved("anna", keys_of('1'))), "anna");
}

TEST_F(AuthenticationTest, UsersCanBeReplaced) {
  const auto early = proved("bob", keys_of('2'));
  authentication_.replace(users({anna()}));
  EXPECT_STREQ(refused(check(early)).text, kWrong);
  EXPECT_EQ(who(proved("anna", keys_of('1'))), "anna");
}

}  // namespace
}  // namespace rkv::server
