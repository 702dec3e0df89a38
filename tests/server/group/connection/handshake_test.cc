// Handshakes: both ends must know the secret, and finish in time (REPTLS-1).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <asio/read.hpp>
#include <asio/write.hpp>
#include <list>

#include "tests/server/group/connection/connections.h"

namespace rkv::server::test {
namespace {

using asio::ip::tcp;
using ::testing::HasSubstr;

// A certificate for any name, and its key, as anybody can make them.
void give_certificate(asio::ssl::context& context) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  ASSERT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  ASSERT_EQ(SSL_CTX_use_certificate(context.native_handle(), certificate), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context.native_handle(), key), 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

class Handshakes : public Connections {
 protected:
  tcp::socket raw() {
    tcp::socket socket(io_);
    asio::error_code error;
    socket.connect(tcp::endpoint(asio::ip::address_v4::loopback(), listener_->port()), error);
    EXPECT_FALSE(error) << error.message();
    return socket;
  }
  // Both ends refuse, and say why.
  void expect_refusal(const GroupSecret& ours, const GroupSecret& theirs, const char* why) {
    listen(ours);
    const auto outcome = connect(theirs, address());
    ASSERT_FALSE(outcome);
    EXPECT_THAT(outcome.error().why, HasSubstr(why));
    EXPECT_THAT(outcome.error().why, HasSubstr(address()));
    ASSERT_TRUE(run_until([&] { return !refusals_.empty(); }));
    EXPECT_THAT(refusals_.front(), HasSubstr(why));
    EXPECT_TRUE(taken_.empty());
  }
};

TEST_F(Handshakes, EndsWithTheSameSecretConnect) {
  ASSERT_NO_FATAL_FAILURE(make_pair());
  EXPECT_EQ(caller_->connection->peer(), address());
  EXPECT_THAT(called_->connection->peer(), HasSubstr("127.0.0.1:"));
  EXPECT_TRUE(refusals_.empty());
  EXPECT_EQ(listener_->handshakes(), 0U);
}

TEST_F(Handshakes, EndsWithoutASecretConnect) {
  listen(GroupSecret::well_known());
  EXPECT_TRUE(connect(GroupSecret::well_known(), address()));
}

TEST_F(Handshakes, AnotherSecretIsRefusedByBothEnds) {
  expect_refusal(a_secret(), another_secret(), "another secret");
}

TEST_F(Handshakes, ACallerWithoutASecretIsRefusedByBothEnds) {
  expect_refusal(a_secret(), GroupSecret::well_known(), "only one of");
}

TEST_F(Handshakes, ACallerWithASecretIsRefusedByAnEndWithoutOne) {
  expect_refusal(GroupSecret::well_known(), a_secret(), "only one of");
}

// The secret of zeros is not the well-known key by another name.
TEST_F(Handshakes, ASecretOfZerosIsNotNone) {
  expect_refusal(secret_of(std::string(64, '0')), GroupSecret::well_known(), "only one of");
}

// The client's context offers the name of another version, or no name. A version from before there
// were names offers none, and the other end must not take it for its own version.
TEST_F(Handshakes, AnotherVersionIsRefusedByBothEnds) {
  listen(a_secret());
  for (const std::string offered : {"\x11rkv-replication/0", ""}) {
    refusals_.clear();
    const auto tls = *ReplicaTls::make(a_secret(), ReplicaTls::Side::kClient);
    ASSERT_EQ(SSL_CTX_set_alpn_protos(tls->context().native_handle(),
                                      reinterpret_cast<const unsigned char*>(offered.data()),
                                      static_cast<unsigned>(offered.size())),
              0);
    std::optional<std::string> why;
    const auto handshake = std::make_shared<ReplicaHandshake>(
        std::make_unique<EncryptedStream>(raw(), tls),
        [&](const auto& stream) { why = stream ? "it has succeeded" : stream.error().why; });
    handshake->start(kPatience);
    ASSERT_TRUE(run_until([&] { return why && !refusals_.empty(); }));
    for (const std::string& said : {*why, refusals_.front()}) {
      EXPECT_THAT(said, HasSubstr("another version of the replicas' protocol: install the same"));
      EXPECT_THAT(said, HasSubstr("127.0.0.1:"));
    }
    EXPECT_TRUE(taken_.empty());
  }
}

TEST_F(Handshakes, AnEndOfNoVersionIsRefusedByTheConnector) {
  const UnversionedReplica other(io_, a_secret());
  const auto outcome = connect(a_secret(), fmt::format("127.0.0.1:{}", other.port()));
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.error().is_of_another_version);
  EXPECT_THAT(outcome.error().why, HasSubstr("another version"));
}

TEST_F(Handshakes, ACertificateInPlaceOfTheSecretIsRefused) {
  asio::ssl::context context(asio::ssl::context::tlsv13_server);
  give_certificate(context);
  tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  asio::ssl::stream<tcp::socket> impostor(io_, context);
  bool is_over = false;
  acceptor.async_accept(impostor.next_layer(), [&](const asio::error_code& error) {
    ASSERT_FALSE(error);
    impostor.async_handshake(asio::ssl::stream_base::server,
                             [&](const asio::error_code&) { is_over = true; });
  });
  const auto outcome =
      connect(a_secret(), fmt::format("127.0.0.1:{}", acceptor.local_endpoint().port()));
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().why, HasSubstr("did not prove"));
  EXPECT_TRUE(run_until([&] { return is_over; }));
}

TEST_F(Handshakes, ATlsClientWithoutAKeyIsRefused) {
  listen(a_secret());
  asio::ssl::context context(asio::ssl::context::tlsv13_client);
  give_certificate(context);
  asio::ssl::stream<tcp::socket> stranger(raw(), context);
  std::optional<asio::error_code> outcome;
  stranger.async_handshake(asio::ssl::stream_base::client,
                           [&](const asio::error_code& error) { outcome = error; });
  ASSERT_TRUE(run_until([&] { return outcome.has_value() && !refusals_.empty(); }));
  EXPECT_TRUE(*outcome);
  EXPECT_THAT(refusals_.front(), HasSubstr("did not prove"));
  EXPECT_TRUE(taken_.empty());
}

TEST_F(Handshakes, AnOlderVersionOfTlsIsRefused) {
  listen(a_secret());
  asio::ssl::context context(asio::ssl::context::tlsv12_client);
  asio::ssl::stream<tcp::socket> stranger(raw(), context);
  stranger.async_handshake(asio::ssl::stream_base::client, [](const asio::error_code&) {});
  ASSERT_TRUE(run_until([&] { return !refusals_.empty(); }));
  EXPECT_TRUE(taken_.empty());
}

TEST_F(Handshakes, GarbageIsRefusedByTheListener) {
  listen(a_secret());
  tcp::socket socket = raw();
  asio::error_code error;
  asio::write(socket, asio::buffer(std::string("GET / HTTP/1.0\r\n\r\n")), error);
  ASSERT_TRUE(run_until([&] { return !refusals_.empty(); }));
  EXPECT_THAT(refusals_.front(), HasSubstr("did not prove"));
  EXPECT_THAT(refusals_.front(), HasSubstr("127.0.0.1:"));
}

TEST_F(Handshakes, GarbageIsRefusedByTheConnector) {
  tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  tcp::socket other(io_);
  const std::string banner = "220 mail.example.org is ready\r\n";
  acceptor.async_accept(other, [&](const asio::error_code& error) {
    ASSERT_FALSE(error);
    asio::error_code ignored;
    asio::write(other, asio::buffer(banner), ignored);
  });
  const auto outcome =
      connect(a_secret(), fmt::format("127.0.0.1:{}", acceptor.local_endpoint().port()));
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().why, HasSubstr("did not prove"));
}

TEST_F(Handshakes, ACallerThatSaysNothingIsRefusedInTime) {
  listen(a_secret(), std::chrono::milliseconds(20));
  const tcp::socket socket = raw();
  ASSERT_TRUE(run_until([&] { return !refusals_.empty(); }));
  EXPECT_THAT(refusals_.front(), HasSubstr("in time"));
  EXPECT_EQ(listener_->handshakes(), 0U);
}

TEST_F(Handshakes, AnEndThatSaysNothingIsGivenUpInTime) {
  tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));  // never accepts
  const auto outcome =
      connect(a_secret(), fmt::format("127.0.0.1:{}", acceptor.local_endpoint().port()),
              std::chrono::milliseconds(20));
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().why, HasSubstr("in time"));
}

TEST_F(Handshakes, ACallerThatGoesIsForgotten) {
  listen(a_secret());
  {
    const tcp::socket socket = raw();
  }
  ASSERT_TRUE(run_until([&] { return !refusals_.empty(); }));
  EXPECT_THAT(refusals_.front(), HasSubstr("ended the connection"));
}

// A stranger that holds many connections keeps no replica out.
TEST_F(Handshakes, TheOldestHandshakeMakesRoom) {
  listen(a_secret(), kPatience);
  std::list<tcp::socket> strangers;
  for (std::size_t i = 0; i < ReplicaListener::kMaxHandshakes; ++i)
    strangers.push_back(raw());
  ASSERT_TRUE(run_until([&] { return listener_->handshakes() == strangers.size(); }));
  EXPECT_TRUE(connect(a_secret(), address()));
  ASSERT_TRUE(run_until([&] { return taken_.size() == 1; }));
  EXPECT_EQ(refusals_.size(), 1U);
  EXPECT_EQ(listener_->handshakes(), ReplicaListener::kMaxHandshakes - 1);
}

TEST_F(Handshakes, NobodyListensThere) {
  tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const std::string to = fmt::format("127.0.0.1:{}", acceptor.local_endpoint().port());
  acceptor.close();
  const auto outcome = connect(a_secret(), to);
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().why, HasSubstr("cannot connect to " + to));
}

TEST_F(Handshakes, ANameIsResolved) {
  listen(a_secret());
  const auto outcome = connect(a_secret(), fmt::format("localhost:{}", listener_->port()));
  EXPECT_TRUE(outcome) << outcome.error().why;
}

TEST_F(Handshakes, WhatIsNoAddressIsRefused) {
  for (const char* const text : {"", ":", "host", "host:", ":7471", "host:70000", "::1:7471"}) {
    const auto outcome = connect(a_secret(), text);
    ASSERT_FALSE(outcome) << text;
    EXPECT_THAT(outcome.error().why, HasSubstr("is not an address")) << text;
    std::string problem;
    EXPECT_FALSE(ReplicaListener::listen(io_, text, a_secret(), {}, &problem)) << text;
    EXPECT_THAT(problem, HasSubstr("is not an address")) << text;
  }
}

TEST_F(Handshakes, AnAddressInUseIsNamed) {
  listen(a_secret());
  std::string problem;
  const auto second = ReplicaListener::listen(io_, address(), a_secret(), {}, &problem);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_THAT(problem, HasSubstr(address() + " is in use"));
}

TEST_F(Handshakes, AnAddressOfAnotherHostIsNamed) {
  std::string problem;
  EXPECT_FALSE(ReplicaListener::listen(io_, "192.0.2.1:0", a_secret(), {}, &problem));
  EXPECT_THAT(problem, HasSubstr("192.0.2.1:0"));
}

TEST_F(Handshakes, OverIpv6) {
  std::string problem;
  const auto listener = ReplicaListener::listen(
      io_, "[::1]:0", a_secret(),
      {.on_connection = [this](auto each) { taken_.push_back(std::move(each)); }}, &problem);
  ASSERT_TRUE(listener) << problem;
  const std::string to = fmt::format("[::1]:{}", (*listener)->port());
  const auto outcome = connect(a_secret(), to);
  ASSERT_TRUE(outcome) << outcome.error().why;
  EXPECT_EQ((*outcome)->peer(), to);
  EXPECT_TRUE(run_until([&] { return taken_.size() == 1; }));
}

TEST_F(Handshakes, ADestroyedConnectorCallsNobody) {
  listen(a_secret());
  bool called = false;
  // At any point of its work.
  for (int steps = 0; steps < 12; ++steps) {
    auto connector = ReplicaConnector::connect(io_, address(), a_secret(), kPatience,
                                               [&](auto) { called = true; });
    for (int i = 0; i < steps && !called; ++i) {
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(100));
    }
    const bool was_called = called;
    connector.reset();
    io_.restart();
    io_.poll();
    EXPECT_EQ(called, was_called) << steps;
    called = false;
  }
}

TEST_F(Handshakes, AListenerIsDestroyedWithHandshakesUnderWay) {
  listen(a_secret(), kPatience);
  const tcp::socket socket = raw();
  ASSERT_TRUE(run_until([&] { return listener_->handshakes() == 1; }));
  listener_.reset();
  io_.restart();
  io_.run();  // nothing is left
  EXPECT_TRUE(refusals_.empty());
}

TEST_F(Handshakes, AListenerIsDestroyedInItsCallback) {
  std::string problem;
  auto made = ReplicaListener::listen(io_, "127.0.0.1:0", a_secret(),
                                      {.on_connection =
                                           [this](auto each) {
                                             taken_.push_back(std::move(each));
                                             listener_.reset();
                                           }},
                                      &problem);
  ASSERT_TRUE(made) << problem;
  listener_ = std::move(*made);
  EXPECT_TRUE(connect(a_secret(), address()));
  ASSERT_TRUE(run_until([&] { return !taken_.empty(); }));
  EXPECT_FALSE(listener_);
}

TEST_F(Handshakes, AnEndedIoContextFreesWhatIsUnderWay) {
  auto io = std::make_unique<asio::io_context>();
  std::string problem;
  auto listener = ReplicaListener::listen(*io, "127.0.0.1:0", a_secret(), {}, &problem);
  ASSERT_TRUE(listener) << problem;
  auto connector = ReplicaConnector::connect(*io, fmt::format("127.0.0.1:{}", (*listener)->port()),
                                             a_secret(), kPatience, [](auto) {});
  io->run_one();
  connector.reset();
  listener->reset();
  io.reset();  // the leak checker of the presets sees what remains
}

}  // namespace
}  // namespace rkv::server::test
