#include "server/group/connection/replica_handshake.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <utility>

namespace rkv::server {

namespace {

NoConnection another_version(const std::string& peer) {
  return {
      .why = fmt::format("{} speaks another version of the replicas' protocol: install the same "
                         "rkv on all replicas",
                         peer),
      .is_of_another_version = true};
}

NoConnection failure_of(const std::string& peer, const asio::error_code& error) {
  const bool is_tls = error.category() == asio::error::get_ssl_category();
  const int reason = is_tls ? ERR_GET_REASON(static_cast<unsigned long>(error.value())) : 0;
  switch (reason) {
    case 0:
      return {.why = fmt::format("{} ended the connection during its handshake: {}", peer,
                                 error.message())};
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
      return {.why = fmt::format(
                  "{} has another secret than this replica: give all replicas of a group the same "
                  "--group-secret",
                  peer)};
    case SSL_R_BAD_EXTENSION:  // find_key() does not know the identity
    case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:
      return {
          .why = fmt::format(
              "only one of {} and this replica has a secret: give all replicas of a group the same "
              "--group-secret",
              peer)};
    case SSL_R_NO_APPLICATION_PROTOCOL:
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
      return another_version(peer);
    default:
      return {.why = fmt::format("{} did not prove that it is a replica of this group: {}", peer,
                                 error.message())};
  }
}

}  // namespace

ReplicaHandshake::ReplicaHandshake(std::unique_ptr<EncryptedStream> stream, Done done)
    : stream_(std::move(stream)),
      timer_(stream_->stream.get_executor()),
      peer_(stream_->peer),
      done_(std::move(done)) {}

void ReplicaHandshake::start(std::chrono::steady_clock::duration limit) {
  timer_.expires_after(limit);
  timer_.async_wait([self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->refuse(fmt::format("{} did not finish its handshake in time", self->peer_));
  });
  const auto type = stream_->tls->side() == ReplicaTls::Side::kClient
                        ? asio::ssl::stream_base::client
                        : asio::ssl::stream_base::server;
  stream_->stream.async_handshake(type, [self = shared_from_this()](const asio::error_code& error) {
    if (!self->done_) return;
    if (error) return self->finish(failure_of(self->peer_, error));
    if (!self->stream_->is_proved()) {  // REPTLS-1
      return self->finish(
          {fmt::format("{} did not prove that it is a replica of this group", self->peer_)});
    }
    // A stream without a protocol's name is of a version older than these names.
    if (!self->stream_->is_of_our_version())  // REPTLS-3
      return self->finish(another_version(self->peer_));
    self->finish({});
  });
}

void ReplicaHandshake::refuse(std::string why) {
  finish({.why = std::move(why)});
}

void ReplicaHandshake::cancel() {
  if (!done_) return;
  done_ = nullptr;
  timer_.cancel();
  stream_->close();
}

void ReplicaHandshake::finish(NoConnection failure) {
  if (!done_) return;
  const Done done = std::exchange(done_, nullptr);
  timer_.cancel();
  if (failure.why.empty()) return done(std::move(stream_));
  stream_->close();  // the stream itself lives until the handshake's handler has run
  done(std::unexpected(std::move(failure)));
}

}  // namespace rkv::server
