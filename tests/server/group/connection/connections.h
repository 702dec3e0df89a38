// Shared by the tests of this folder: a listener on the loopback interface, connections to it, and
// waiting for conditions.
#pragma once

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/group/connection/replica_connection.h"
#include "server/group/connection/replica_connector.h"
#include "server/group/connection/replica_handshake.h"
#include "server/group/connection/replica_listener.h"
#include "server/group/rules/encoding.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server::test {

inline constexpr std::chrono::seconds kPatience{60};  // a test that waits longer has failed

inline GroupSecret secret_of(const std::string& digits) {
  const TempDir directory;
  const std::string path = directory.file("secret");
  testing::write_file(path, digits + "\n");
  EXPECT_EQ(chmod(path.c_str(), 0600), 0);
  std::string problem;
  auto secret = GroupSecret::load(path, &problem);
  EXPECT_TRUE(secret) << problem;
  return secret ? *secret : GroupSecret::well_known();
}
inline GroupSecret a_secret() {
  return secret_of(std::string(64, 'a'));
}
inline GroupSecret another_secret() {
  return secret_of(std::string(63, 'a') + "b");
}

// Runs handlers until the condition holds.
[[nodiscard]] inline bool run_until(asio::io_context& io, const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    io.restart();
    io.run_one_for(std::chrono::milliseconds(100));
  }
  return true;
}

// An entries message with a block of so many bytes; its number tells it from others.
inline ReplicaConnection::SharedBytes a_message(std::uint64_t number, std::size_t length) {
  Entries entries{.term = 1, .number = number, .previous = {}, .marks = {}};
  if (length != 0) {
    entries.block = {
        .previous = {},
        .last = {.term = 1, .version = number},
        .bytes = std::make_shared<std::vector<std::byte>>(length, static_cast<std::byte>(number))};
  }
  return std::make_shared<const std::vector<std::byte>>(encode(entries));
}

// One end of a connection, and what its callbacks reported.
struct End {
  explicit End(std::unique_ptr<ReplicaConnection> made) : connection(std::move(made)) {}
  void start() {
    connection->start({.on_message = [this](auto message) { got.push_back(std::move(message)); },
                       .on_end = [this](auto why) { ends.push_back(std::move(why)); }});
  }
  std::unique_ptr<ReplicaConnection> connection;
  std::vector<std::vector<std::byte>> got;
  std::vector<std::string> ends;
};

// A replica of before the versions had names: its callers refuse it.
class UnversionedReplica {
 public:
  UnversionedReplica(asio::io_context& io, const GroupSecret& secret)
      : tls_(*ReplicaTls::make(secret, ReplicaTls::Side::kServer)),
        acceptor_(io, {asio::ip::address_v4::loopback(), 0}) {
    SSL_CTX_set_alpn_select_cb(tls_->context().native_handle(), nullptr, nullptr);
    acceptor_.async_accept([this](const asio::error_code& error, asio::ip::tcp::socket socket) {
      if (error) return;
      stream_ = std::make_unique<EncryptedStream>(std::move(socket), tls_);
      stream_->stream.async_handshake(asio::ssl::stream_base::server,
                                      [](const asio::error_code&) {});
    });
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  std::shared_ptr<ReplicaTls> tls_;
  asio::ip::tcp::acceptor acceptor_;
  std::unique_ptr<EncryptedStream> stream_;
};

class Connections : public ::testing::Test {
 protected:
  void listen(const GroupSecret& secret, std::chrono::milliseconds limit = kHandshakeLimit) {
    std::string problem;
    auto made = ReplicaListener::listen(
        io_, "127.0.0.1:0", secret,
        {.on_connection = [this](auto each) { taken_.push_back(std::move(each)); },
         .on_refusal = [this](const std::string& why) { refusals_.push_back(why); }},
        &problem, limit);
    ASSERT_TRUE(made) << problem;
    listener_ = std::move(*made);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(listener_->port()); }
  // Waits for the connector's outcome.
  ReplicaConnector::Outcome connect(const GroupSecret& secret, const std::string& to,
                                    std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    std::optional<ReplicaConnector::Outcome> outcome;
    const auto connector = ReplicaConnector::connect(
        io_, to, secret, limit, [&](auto found) { outcome.emplace(std::move(found)); });
    if (!run_until([&] { return outcome.has_value(); }))
      return std::unexpected(NoConnection{.why = "never called"});
    return std::move(*outcome);
  }
  bool run_until(const std::function<bool()>& condition) { return test::run_until(io_, condition); }
  // Makes `caller_` and `called_`, which are not started yet.
  void make_pair() {
    listen(a_secret());
    auto outcome = connect(a_secret(), address());
    ASSERT_TRUE(outcome) << outcome.error().why << ::testing::PrintToString(refusals_);
    ASSERT_TRUE(run_until([&] { return !taken_.empty(); }));
    caller_.emplace(std::move(*outcome));
    called_.emplace(std::move(taken_.back()));
    taken_.clear();
  }

  asio::io_context io_;
  std::unique_ptr<ReplicaListener> listener_;
  std::vector<std::unique_ptr<ReplicaConnection>> taken_;
  std::vector<std::string> refusals_;
  std::optional<End> caller_;
  std::optional<End> called_;
};

}  // namespace rkv::server::test
