// The words by which a connection begins, without a network: what the client asks, which answers
// it believes, and what it says about the others.
#include "client/link/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/check.h"

namespace rkv::client {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCalled = "192.0.2.1:7471";
constexpr Challenge kChallenge{.stamp = 5, .cookie = {std::byte{7}}};

class HandshakeTest : public ::testing::Test {
 protected:
  HandshakeTest() { begin(); }

  void begin(std::uint64_t nonce = 77) {
    handshake_.begin({.credits_wanted = 16,
                      .checks_group = true,
                      .session_to_resume = 3,
                      .client_nonce = nonce,
                      .name = "a client"});
  }
  ConnectRequest sent() {
    hello_ = handshake_.hello();
    const auto request = decode_connect_request(hello_);
    RKV_CHECK(request, "the request decodes");
    return *request;
  }
  static rdma::Rejection rejection_of(const ConnectReject& reject, const char* called = kCalled) {
    rdma::Rejection rejection{.called = called};
    rejection.length = encode(reject, MutableBytes(rejection.reason));
    return rejection;
  }
  Status refuse(const rdma::Rejection& rejection) {
    return handshake_.on_refused({.code = Code::kRejected, .text = "rejected"}, rejection);
  }
  Status refuse(const ConnectReject& reject) { return refuse(rejection_of(reject)); }
  // An accept as it arrives, padded.
  static std::vector<std::byte> accept_bytes(std::optional<Proof> answer = std::nullopt) {
    std::vector<std::byte> bytes(196);
    encode(ConnectAccept{.epoch = 9,
                         .session = 4,
                         .credits = 8,
                         .max_message_bytes = kMaxMessageBytes,
                         .max_sent_bytes = 8192,
                         .root = {.address = 64, .remote_key = 1, .length = kRootPageBytes},
                         .store = 6,
                         .answer = answer},
           bytes);
    return bytes;
  }
  static void expect_error(const Error& error, Code code, const std::string& text) {
    EXPECT_EQ(error.code, code) << text;
    EXPECT_THAT(to_string(error), HasSubstr(text));
  }

  std::optional<Credentials> credentials_;
  Handshake handshake_{credentials_};
  Handshake::Hello hello_{};
};

TEST_F(HandshakeTest, AClientWithoutAUserSendsItsNameAndAsksForNoChallenge) {
  EXPECT_FALSE(handshake_.asks_for_challenge());
  const ConnectRequest request = sent();
  EXPECT_EQ(request.credits_wanted, 16);
  EXPECT_TRUE(request.checks_group);
  EXPECT_EQ(request.session_to_resume, 3U);
  EXPECT_EQ(request.client_nonce, 77U);
  EXPECT_EQ(request.name, "a client");
  EXPECT_EQ(request.user, 0U);
}

TEST_F(HandshakeTest, AnAcceptIsTaken) {
  const auto accept = handshake_.on_accepted(accept_bytes());
  ASSERT_TRUE(accept);
  EXPECT_EQ(accept->epoch, 9U);
  EXPECT_EQ(accept->session, 4U);
  EXPECT_EQ(accept->store, 6U);
}

TEST_F(HandshakeTest, AnAcceptThatIsNotOneIsRefused) {
  const auto expect_corrupt = [&](Bytes bytes, const char* text) {
    const auto accept = handshake_.on_accepted(bytes);
    ASSERT_FALSE(accept);
    expect_error(accept.error(), Code::kCorrupt, text);
  };
  expect_corrupt({}, "does not speak rkv");
  expect_corrupt(std::vector<std::byte>(196, std::byte{1}), "does not speak rkv");
  expect_corrupt(Bytes(accept_bytes()).first(64), "wrong length");
  std::vector<std::byte> without_credits = accept_bytes();
  store_le<std::uint16_t>(without_credits.data() + 24, 0);
  expect_corrupt(without_credits, "connection data is invalid");
}

TEST_F(HandshakeTest, AnAcceptOfAnotherVersionIsRefused) {
  std::vector<std::byte> newer = accept_bytes();
  store_le<std::uint16_t>(newer.data() + 4, kWireVersion + 1);
  const auto accept = handshake_.on_accepted(newer);
  ASSERT_FALSE(accept);
  expect_error(accept.error(), Code::kVersionMismatch, "install the same rkv on both sides");
}

// ---- refusals

TEST_F(HandshakeTest, EachReasonHasItsCodeAndItsSentence) {
  struct Reason {
    Code sent;
    Code code;
    const char* text;
  };
  for (const Reason& reason : {
           Reason{Code::kVersionMismatch, Code::kVersionMismatch, "another version of rkv"},
           {Code::kNotPrimary, Code::kNotPrimary, "a backup of its group"},
           {Code::kBusy, Code::kBusy, "accepts no clients at the moment"},
           {Code::kOutOfMemory, Code::kBusy, "accepts no clients at the moment"},
           {Code::kUnauthenticated, Code::kUnauthenticated, "refused the connection"},
           {Code::kPermission, Code::kRejected, "refused the connection"},
       }) {
    begin();
    const Status refused = refuse({.code = reason.sent, .text = "as the server says"});
    ASSERT_FALSE(refused);
    expect_error(refused.error(), reason.code, reason.text);
    EXPECT_EQ(handshake_.refusal(), "as the server says");
    EXPECT_EQ(handshake_.named_primary(), "");
  }
}

TEST_F(HandshakeTest, ABackupNamesThePrimary) {
  ASSERT_FALSE(refuse({.code = Code::kNotPrimary, .text = "a backup", .primary = "h:1"}));
  EXPECT_EQ(handshake_.named_primary(), "h:1");
  EXPECT_EQ(handshake_.refusal(), "a backup");
}

TEST_F(HandshakeTest, AnotherAttemptForgetsTheRefusal) {
  ASSERT_FALSE(refuse({.code = Code::kNotPrimary, .text = "a backup", .primary = "h:1"}));
  begin();
  EXPECT_EQ(handshake_.named_primary(), "");
  EXPECT_EQ(handshake_.refusal(), "");
}

TEST_F(HandshakeTest, AnErrorOfTheTransportIsReturned) {
  const rdma::Rejection rejection = rejection_of({.code = Code::kBusy, .text = "left over"});
  for (const Code code : {Code::kTimeout, Code::kUnreachable, Code::kNoDevice}) {
    const Status refused = handshake_.on_refused({.code = code, .text = "as it was"}, rejection);
    ASSERT_FALSE(refused);
    expect_error(refused.error(), code, "as it was");
    EXPECT_EQ(handshake_.refusal(), "");
  }
}

TEST_F(HandshakeTest, ARejectionWithoutAReasonMayBeOfAServerThatEnds) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{148}, std::size_t{1000}}) {
    rdma::Rejection rejection;
    rejection.length = length;
    const Status refused = refuse(rejection);
    ASSERT_FALSE(refused);
    expect_error(refused.error(), Code::kUnreachable, "refused without a reason");
  }
}

TEST_F(HandshakeTest, ARejectionOfAStrangerIsRefused) {
  rdma::Rejection rejection;
  rejection.length = 20;
  std::fill_n(rejection.reason, rejection.length, std::byte{'?'});
  const Status refused = refuse(rejection);
  ASSERT_FALSE(refused);
  expect_error(refused.error(), Code::kCorrupt, "does not speak rkv");
  EXPECT_EQ(handshake_.refusal(), "");
}

TEST_F(HandshakeTest, ARejectionOfAnotherVersionIsRefused) {
  rdma::Rejection rejection = rejection_of({.code = Code::kBusy, .text = "unread"});
  store_le<std::uint16_t>(rejection.reason + 4, kWireVersion + 1);
  const Status refused = refuse(rejection);
  ASSERT_FALSE(refused);
  expect_error(refused.error(), Code::kVersionMismatch, "install the same rkv on both sides");
  EXPECT_EQ(handshake_.refusal(), "");
}

// ---- a client with a user

class HandshakeOfUser : public HandshakeTest {
 protected:
  HandshakeOfUser() {
    credentials_.emplace();
    credentials_->user = number_of_user("anna");
    credentials_->keys = ClientKeys::of(*Secret::parse(std::string(64, '1')));
    begin();
  }
  static ConnectReject challenging(const Challenge& challenge = kChallenge) {
    return {.code = Code::kUnauthenticated, .text = "prove who you are", .challenge = challenge};
  }
  // The claim of a request, as a server that sent the challenge reads it.
  static Claim claim_of(const ConnectRequest& request, const char* called = kCalled) {
    return {.stamp = kChallenge.stamp,
            .cookie = kChallenge.cookie,
            .user = request.user,
            .nonce = request.client_nonce,
            .session_to_resume = request.session_to_resume,
            .credits_wanted = request.credits_field(),
            .server = called};
  }
  // The accept of a server that knows the user.
  std::vector<std::byte> proved_accept(const char* called = kCalled) {
    std::vector<std::byte> bytes = accept_bytes(Proof{});
    const Proof answer = make_answer(credentials_->keys.stored, claim_of(sent(), called),
                                     Bytes(bytes).first(kConnectAnswerOffset));
    std::ranges::copy(answer, bytes.begin() + kConnectAnswerOffset);
    return bytes;
  }
  void expect_unauthenticated(Bytes accept, const char* text) {
    const auto accepted = handshake_.on_accepted(accept);
    ASSERT_FALSE(accepted);
    expect_error(accepted.error(), Code::kUnauthenticated, text);
  }
};

TEST_F(HandshakeOfUser, TheFirstRequestAsksForAChallenge) {
  EXPECT_TRUE(handshake_.asks_for_challenge());
  const ConnectRequest request = sent();
  EXPECT_EQ(request.user, number_of_user("anna"));
  EXPECT_EQ(request.stamp, 0U);
  EXPECT_EQ(request.proof, Proof{});
  EXPECT_EQ(request.name, "");
}

TEST_F(HandshakeOfUser, TheChallengeIsAnsweredByAProof) {
  ASSERT_TRUE(refuse(challenging()));
  EXPECT_FALSE(handshake_.asks_for_challenge());
  EXPECT_EQ(handshake_.refusal(), "") << "a challenge is not a refusal";
  const ConnectRequest request = sent();
  EXPECT_EQ(request.stamp, kChallenge.stamp);
  const StoredKeys& keys = credentials_->keys.stored;
  EXPECT_TRUE(is_proved(keys, claim_of(request), request.proof));
  EXPECT_FALSE(is_proved(keys, claim_of(request, "192.0.2.2:7471"), request.proof))
      << "the proof is good at one server";
}

TEST_F(HandshakeOfUser, AServerThatKnowsTheUserIsBelieved) {
  ASSERT_TRUE(refuse(challenging()));
  const auto accepted = handshake_.on_accepted(proved_accept());
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->session, 4U);
}

TEST_F(HandshakeOfUser, AnAcceptWithAChangedByteIsRefused) {
  ASSERT_TRUE(refuse(challenging()));
  const std::vector<std::byte> good = proved_accept();
  for (std::size_t i = 0; i < kConnectAcceptMaxBytes; ++i) {
    std::vector<std::byte> changed = good;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(handshake_.on_accepted(changed)) << "byte " << i;
  }
}

TEST_F(HandshakeOfUser, TheAnswerOfAnotherServerIsRefused) {
  ASSERT_TRUE(refuse(challenging()));
  expect_unauthenticated(proved_accept("192.0.2.2:7471"), "does not know this user's secret");
}

TEST_F(HandshakeOfUser, AServerThatAsksForNoProofIsNotUsed) {
  expect_unauthenticated(accept_bytes(), "has no users");
  expect_unauthenticated(accept_bytes(Proof{}), "has no users");
  expect_unauthenticated({}, "has no users");
}

TEST_F(HandshakeOfUser, AServerThatProvesNothingIsNotUsed) {
  ASSERT_TRUE(refuse(challenging()));
  expect_unauthenticated(accept_bytes(), "has no users");
}

// The proof came too late. Without a bound a server could keep a client challenged.
TEST_F(HandshakeOfUser, ASecondChallengeEndsTheAttempt) {
  for (const std::uint64_t stamp : {kChallenge.stamp, std::uint64_t{0}}) {
    begin();
    ASSERT_TRUE(refuse(challenging({.stamp = stamp, .cookie = {}})));
    const Status refused = refuse(challenging());
    ASSERT_FALSE(refused);
    expect_error(refused.error(), Code::kBusy, "too late");
    EXPECT_EQ(handshake_.refusal(), "prove who you are");
  }
}

TEST_F(HandshakeOfUser, AnotherAttemptProvesAgain) {
  ASSERT_TRUE(refuse(challenging()));
  const std::vector<std::byte> accept = proved_accept();
  begin(78);
  EXPECT_TRUE(handshake_.asks_for_challenge());
  EXPECT_EQ(sent().stamp, 0U);
  ASSERT_TRUE(refuse(challenging()));
  EXPECT_TRUE(is_proved(credentials_->keys.stored, claim_of(sent()), sent().proof));
  expect_unauthenticated(accept, "does not know this user's secret");
}

TEST_F(HandshakeOfUser, ARefusedUserLearnsWhichAddressWasCalled) {
  const ConnectReject unknown{.code = Code::kUnauthenticated, .text = "unknown"};
  ASSERT_FALSE(refuse(unknown));
  EXPECT_EQ(handshake_.refusal(), "unknown (this client called 192.0.2.1:7471)");
  begin();
  ASSERT_FALSE(refuse(rejection_of(unknown, "")));
  EXPECT_EQ(handshake_.refusal(), "unknown");
}

}  // namespace
}  // namespace rkv::client
