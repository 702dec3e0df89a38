#include "server/clients/admission/authentication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rkv::server {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kNow = 1000 * kNanosPerSecond;
constexpr Route kHere{.called = "192.0.2.1:7471", .origin = "192.0.2.9"};

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

  // A request with the proof of a client that was challenged at `at` by this route.
  ConnectRequest proved(const std::string& name, const ClientKeys& keys, Nanos at = kNow,
                        const Route& route = kHere) {
    ConnectRequest request{.credits_wanted = 4,
                           .session_to_resume = 3,
                           .client_nonce = ++nonce_,
                           .user = number_of_user(name)};
    const auto answer = authentication_.check(request, route, at);
    const auto* const challenged = std::get_if<Authentication::Challenged>(&answer);
    EXPECT_NE(challenged, nullptr);
    if (challenged == nullptr) return request;
    request.stamp = challenged->challenge.stamp;
    request.proof = make_proof(keys, {.stamp = request.stamp,
                                      .cookie = challenged->challenge.cookie,
                                      .user = request.user,
                                      .nonce = request.client_nonce,
                                      .session_to_resume = request.session_to_resume,
                                      .credits_wanted = request.credits_field(),
                                      .server = route.called});
    return request;
  }
  Authentication::Answer check(const ConnectRequest& request, Nanos now = kNow,
                               const Route& route = kHere) {
    return authentication_.check(request, route, now);
  }
  // The name of the user that the request proves; "" if it proves none.
  std::string who(const ConnectRequest& request, Nanos now = kNow, const Route& route = kHere) {
    const auto answer = check(request, now, route);
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

  Authentication authentication_{users({anna(), bob()}), {.most_used = 5, .most_used_by_one = 3}};
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
  EXPECT_EQ(claim.server, kHere.called);
}

TEST_F(AuthenticationTest, AWrongSecretAndAnUnknownUserAreRefusedAlike) {
  const auto wrong = refused(check(proved("anna", keys_of('2'))));
  const auto unknown = refused(check(proved("carol", keys_of('2'))));
  for (const auto& one : {wrong, unknown}) {
    EXPECT_EQ(one.code, Code::kUnauthenticated);
    EXPECT_STREQ(one.text, kWrong);
  }
}

TEST_F(AuthenticationTest, BothSecretsOfAUserAreGoodWhileTheyAreExchanged) {
  User renewed = anna();
  renewed.keys = keys_of('3').stored;
  authentication_.replace(users({anna(), renewed, bob()}));
  EXPECT_EQ(who(proved("anna", keys_of('1'))), "anna");
  EXPECT_EQ(who(proved("anna", keys_of('3'))), "anna");
  EXPECT_STREQ(refused(check(proved("anna", keys_of('2')))).text, kWrong);
  const auto answer = check(proved("anna", keys_of('3')));
  EXPECT_EQ(std::get<Authentication::Proved>(answer).user->keys, renewed.keys)
      << "the server's proof must be by the same key";
  authentication_.replace(users({renewed, bob()}));
  EXPECT_STREQ(refused(check(proved("anna", keys_of('1')))).text, kWrong);
}

// Behind NAT or a proxy a client calls another address than the one that the server is called at.
TEST(Authentication, AnAdvertisedAddressMayHaveBeenCalled) {
  const ClientKeys keys = ClientKeys::of(*Secret::parse(std::string(64, '1')));
  const User anna{.name = "anna", .role = Role::kWrite, .keys = keys.stored};
  std::string problem;
  Authentication authentication(*Users::parse(Users::line_of(anna), "users", &problem), {},
                                {"198.51.100.7:7471", "[2001:db8::7]:7471"});
  std::uint64_t nonce = 0;
  const auto is_in = [&](std::string_view called) {
    ConnectRequest request{
        .credits_wanted = 4, .client_nonce = ++nonce, .user = number_of_user("anna")};
    const auto challenged = authentication.check(request, kHere, kNow);
    const Challenge& challenge = std::get<Authentication::Challenged>(challenged).challenge;
    request.stamp = challenge.stamp;
    request.proof = make_proof(keys, {.stamp = challenge.stamp,
                                      .cookie = challenge.cookie,
                                      .user = request.user,
                                      .nonce = request.client_nonce,
                                      .credits_wanted = request.credits_field(),
                                      .server = called});
    const auto answer = authentication.check(request, kHere, kNow);
    const auto* const proved = std::get_if<Authentication::Proved>(&answer);
    return proved != nullptr && proved->claim.server == called;
  };
  EXPECT_TRUE(is_in(kHere.called));
  EXPECT_TRUE(is_in("198.51.100.7:7471"));
  EXPECT_TRUE(is_in("[2001:db8::7]:7471"));
  EXPECT_FALSE(is_in("198.51.100.8:7471"));
}

// For the server's log.
TEST_F(AuthenticationTest, ARefusalNamesTheUserIfThereIsOne) {
  EXPECT_EQ(refused(check(proved("anna", keys_of('2')))).user->name, "anna");
  EXPECT_EQ(refused(check(proved("nobody", keys_of('2')))).user->name, "");
  EXPECT_EQ(refused(check({.credits_wanted = 4})).user, nullptr);
}

TEST_F(AuthenticationTest, AClientWithoutAUserIsRefused) {
  const auto answer = refused(check({.credits_wanted = 4, .name = "somebody"}));
  EXPECT_EQ(answer.code, Code::kUnauthenticated);
  EXPECT_THAT(answer.text, HasSubstr("--user"));
}

TEST_F(AuthenticationTest, AProofIsGoodOnce) {
  const auto request = proved("anna", keys_of('1'));
  EXPECT_EQ(who(request), "anna");
  for (const Nanos later : {Nanos{0}, kNanosPerSecond, Challenges::kLife}) {
    const auto again = refused(check(request, kNow + later));
    EXPECT_THAT(again.text, HasSubstr("used before"));
  }
  EXPECT_TRUE(is_challenge(check(request, kNow + Challenges::kLife + kNanosPerMs)));
}

TEST_F(AuthenticationTest, AProofIsOfOneRequestOnly) {
  const auto request = proved("anna", keys_of('1'));
  std::vector<ConnectRequest> wrong(3, request);
  wrong[0].credits_wanted = 5;
  wrong[1].session_to_resume = 4;
  wrong[2].proof[0] ^= std::byte{1};
  for (const ConnectRequest& other : wrong)
    EXPECT_STREQ(refused(check(other)).text, kWrong);
  std::vector<ConnectRequest> unasked(4, request);
  unasked[0].client_nonce = 99;
  unasked[1].stamp -= 1;
  unasked[2].stamp ^= std::uint64_t{1} << 63;
  unasked[3].user = number_of_user("bob");
  for (const ConnectRequest& other : unasked)
    EXPECT_TRUE(is_challenge(check(other))) << "no challenge was made for it";
  EXPECT_EQ(who(request), "anna") << "none of these has used it up";
}

// A false server that was called under its own address cannot pass the proof on, and a listener
// cannot use a proof that was refused before it was used up.
TEST_F(AuthenticationTest, AProofIsOfOneRouteOnly) {
  const Route elsewhere{.called = "192.0.2.66:7471", .origin = kHere.origin};
  const Route from_elsewhere{.called = kHere.called, .origin = "192.0.2.67"};
  for (const Route& route : {elsewhere, from_elsewhere}) {
    const auto request = proved("anna", keys_of('1'), kNow, route);
    EXPECT_TRUE(is_challenge(check(request)));
    EXPECT_EQ(who(request, kNow, route), "anna");
  }
}

TEST_F(AuthenticationTest, TextsOfARouteDoNotRunIntoEachOther) {
  const auto request = proved("anna", keys_of('1'), kNow, {.called = "b:1", .origin = "a"});
  EXPECT_TRUE(is_challenge(check(request, kNow, {.called = ":1", .origin = "ab"})));
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
  EXPECT_TRUE(is_challenge(restarted.check(request, kHere, kNow)));
}

// CHALLENGE-2, CHALLENGE-3: with 3 proofs of a user remembered none of its further ones is accepted
// before one of them is old, and with 5 of all users none at all.
TEST_F(AuthenticationTest, NoProofIsAcceptedThatCannotBeRemembered) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(who(proved("anna", keys_of('1'))), "anna");
  EXPECT_EQ(refused(check(proved("anna", keys_of('1')))).code, Code::kBusy);
  EXPECT_STREQ(refused(check(proved("anna", keys_of('2')))).text, kWrong);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(who(proved("bob", keys_of('2'))), "bob") << "another user is not kept out";
  EXPECT_EQ(refused(check(proved("bob", keys_of('2')))).code, Code::kBusy);
  const Nanos later = kNow + Challenges::kLife + 2 * kNanosPerSecond;
  EXPECT_EQ(who(proved("anna", keys_of('1'), later), later), "anna");
  EXPECT_EQ(who(proved("bob", keys_of('2'), later), later), "bob");
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
