#include "server/group/connection/replica_listener.h"

#include <fmt/format.h>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <list>
#include <utility>

#include "common/parse.h"
#include "server/group/connection/replica_handshake.h"

namespace rkv::server {

namespace {

using asio::ip::tcp;

// Pause before the next attempt after a failure, such as too many open files.
constexpr std::chrono::milliseconds kAfterFailure{100};

}  // namespace

class ReplicaListener::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, std::shared_ptr<ReplicaTls> tls, Callbacks callbacks,
       std::chrono::milliseconds limit)
      : acceptor_(io),
        retry_(io),
        tls_(std::move(tls)),
        callbacks_(std::move(callbacks)),
        limit_(limit) {}

  asio::error_code open(const tcp::endpoint& endpoint) {
    asio::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) {
      asio::error_code ignored;
      acceptor_.close(ignored);
    }
    return error;
  }
  void accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](const asio::error_code& error, tcp::socket socket) {
          if (self->closed_) return;
          if (error) return self->accept_later(error);
          self->shake_hands(std::move(socket));
          self->accept();
        });
  }
  void close() {
    closed_ = true;
    asio::error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    for (const auto& handshake : handshakes_)
      handshake->cancel();
    handshakes_.clear();
  }
  std::uint16_t port() const {
    asio::error_code error;
    return acceptor_.local_endpoint(error).port();
  }
  std::size_t handshakes() const { return handshakes_.size(); }

 private:
  void accept_later(const asio::error_code& error) {
    if (callbacks_.on_refusal) {
      // The callback may destroy the listener.
      callbacks_.on_refusal(
          fmt::format("no connection of a replica can be taken: {}", error.message()));
      if (closed_) return;
    }
    retry_.expires_after(kAfterFailure);
    retry_.async_wait([self = shared_from_this()](const asio::error_code& canceled) {
      if (!canceled && !self->closed_) self->accept();
    });
  }
  void shake_hands(tcp::socket socket) {
    if (handshakes_.size() >= kMaxHandshakes) {
      handshakes_.front()->refuse(
          "a connection without a handshake made room: too many of them were under way");
    }
    if (closed_) return;
    const auto at = handshakes_.emplace(handshakes_.end());
    *at = std::make_shared<ReplicaHandshake>(
        std::make_unique<EncryptedStream>(std::move(socket), tls_),
        [this, self = weak_from_this(), at](auto stream) {
          const auto held = self.lock();
          if (!held || closed_) return;
          handshakes_.erase(at);
          if (stream) {
            callbacks_.on_connection(std::make_unique<ReplicaConnection>(std::move(*stream)));
          } else if (callbacks_.on_refusal) {
            callbacks_.on_refusal(stream.error().why);
          }
        });
    (*at)->start(limit_);
  }

  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  const std::shared_ptr<ReplicaTls> tls_;
  const Callbacks callbacks_;
  const std::chrono::milliseconds limit_;
  std::list<std::shared_ptr<ReplicaHandshake>> handshakes_;  // the oldest first
  bool closed_ = false;
};

Result<std::unique_ptr<ReplicaListener>> ReplicaListener::listen(
    asio::io_context& io, const std::string& address, const GroupSecret& secret,
    Callbacks callbacks, std::string* problem, std::chrono::milliseconds handshake_limit) {
  std::string host;
  std::string port;
  if (!split_address(address, host, port)) {
    *problem = fmt::format("{} is not an address: replicas need HOST:PORT, or [HOST]:PORT for IPv6",
                           shown(address));
    return fail(Code::kInvalidArgument, "not an address of the form HOST:PORT");
  }
  RKV_ASSIGN_OR_RETURN(auto tls, ReplicaTls::make(secret, ReplicaTls::Side::kServer));
  asio::error_code error;
  const auto found = tcp::resolver(io).resolve(host, port, tcp::resolver::numeric_service, error);
  if (error) {
    *problem =
        fmt::format("{} is not an address of this host: {}", shown(address), error.message());
    return fail(Code::kInvalidArgument, "no host has this name");
  }
  auto impl = std::make_shared<Impl>(io, std::move(tls), std::move(callbacks), handshake_limit);
  for (const auto& each : found) {
    error = impl->open(each.endpoint());
    if (!error) break;
  }
  if (error == asio::error::address_in_use) {
    *problem = fmt::format(
        "{} is in use by another process: give replicas another address or end that process",
        shown(address));
    return fail_call(Code::kConflict, "bind", error.value(), "the address is in use");
  }
  if (error) {
    *problem = fmt::format("replicas cannot connect to {}: {}", shown(address), error.message());
    return fail_call(Code::kInvalidArgument, "bind", error.value(),
                     "choose an address that is free");
  }
  impl->accept();
  return std::unique_ptr<ReplicaListener>(new ReplicaListener(std::move(impl)));
}

ReplicaListener::ReplicaListener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ReplicaListener::~ReplicaListener() {
  impl_->close();
}

std::uint16_t ReplicaListener::port() const {
  return impl_->port();
}

std::size_t ReplicaListener::handshakes() const {
  return impl_->handshakes();
}

}  // namespace rkv::server
