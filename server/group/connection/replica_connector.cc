#include "server/group/connection/replica_connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <utility>
#include <vector>

#include "common/parse.h"
#include "server/group/connection/replica_handshake.h"
#include "server/group/connection/replica_listener.h"

namespace rkv::server {

namespace {
using asio::ip::tcp;
}

class ReplicaConnector::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, const std::string& address, Done done)
      : io_(io),
        address_(address),
        done_(std::move(done)),
        timer_(io),
        resolver_(io),
        socket_(io) {}

  void start(const GroupSecret& secret, std::chrono::steady_clock::duration limit) {
    deadline_ = std::chrono::steady_clock::now() + limit;
    timer_.expires_at(deadline_);
    timer_.async_wait([self = shared_from_this()](const asio::error_code& error) {
      if (!error) self->fail(fmt::format("{} did not answer in time", self->address_));
    });
    std::string host;
    std::string port;
    auto tls = ReplicaTls::make(secret, ReplicaTls::Side::kClient);
    if (!tls) return fail_later(to_string(tls.error()));
    tls_ = std::move(*tls);
    if (!split_address(address_, host, port)) {
      return fail_later(fmt::format("{} is not an address of the form HOST:PORT", shown(address_)));
    }
    asio::error_code not_numeric;
    const auto numeric = asio::ip::make_address(host, not_numeric);
    if (!not_numeric) {
      const auto number = parse_number<std::uint16_t>(port).value_or(0);
      return connect(std::vector{tcp::endpoint(numeric, number)});
    }
    resolver_.async_resolve(host, port, tcp::resolver::numeric_service,
                            [self = shared_from_this()](const asio::error_code& error,
                                                        const tcp::resolver::results_type& found) {
                              if (!self->done_) return;
                              if (error) {
                                return self->fail(fmt::format("no host is called {}: {}",
                                                              self->address_, error.message()));
                              }
                              self->connect({found.begin(), found.end()});
                            });
  }
  void cancel() {
    done_ = nullptr;
    stop();
  }

 private:
  void connect(const std::vector<tcp::endpoint>& endpoints) {
    asio::async_connect(
        socket_, endpoints,
        [self = shared_from_this()](const asio::error_code& error, const tcp::endpoint&) {
          if (!self->done_) return;
          if (error) {
            return self->fail(
                fmt::format("cannot connect to {}: {}", self->address_, error.message()));
          }
          self->shake_hands();
        });
  }
  void shake_hands() {
    handshake_ = std::make_shared<ReplicaHandshake>(
        std::make_unique<EncryptedStream>(std::move(socket_), tls_),
        [self = weak_from_this()](auto stream) {
          const auto held = self.lock();
          if (!held) return;
          if (!stream) return held->finish(std::unexpected(std::move(stream.error())));
          held->finish(std::make_unique<ReplicaConnection>(std::move(*stream)));
        });
    handshake_->start(std::min<std::chrono::steady_clock::duration>(
        kHandshakeLimit, deadline_ - std::chrono::steady_clock::now()));
  }
  void fail(std::string why) { finish(std::unexpected(NoConnection{.why = std::move(why)})); }
  // Fails later, since `done` must not be called from within connect().
  void fail_later(std::string why) {
    asio::post(io_, [self = shared_from_this(), why = std::move(why)] { self->fail(why); });
  }
  void finish(Outcome outcome) {
    if (!done_) return;
    const Done done = std::exchange(done_, nullptr);
    stop();
    done(std::move(outcome));
  }
  void stop() {
    timer_.cancel();
    resolver_.cancel();
    asio::error_code ignored;
    socket_.close(ignored);
    if (handshake_) handshake_->cancel();
  }

  asio::io_context& io_;
  const std::string address_;
  Done done_;
  asio::steady_timer timer_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  std::shared_ptr<ReplicaTls> tls_;
  std::shared_ptr<ReplicaHandshake> handshake_;
  std::chrono::steady_clock::time_point deadline_;
};

std::unique_ptr<ReplicaConnector> ReplicaConnector::connect(
    asio::io_context& io, const std::string& address, const GroupSecret& secret,
    std::chrono::steady_clock::duration limit, Done done) {
  auto impl = std::make_shared<Impl>(io, address, std::move(done));
  impl->start(secret, limit);
  return std::unique_ptr<ReplicaConnector>(new ReplicaConnector(std::move(impl)));
}

ReplicaConnector::ReplicaConnector(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ReplicaConnector::~ReplicaConnector() {
  impl_->cancel();
}

}  // namespace rkv::server
