// TLS 1.3 between replicas, from OpenSSL: a pre-shared key, made of the group's secret, and fresh
// keys for each connection (ephemeral Diffie-Hellman). So a recorded connection stays secret after
// the secret is lost. There are no certificates.
//
// Invariants:
//  REPTLS-1  A handshake succeeds only if both ends know the same secret: an end without it, or
//      with a certificate in its place, fails.
//  REPTLS-2  A stream that only receives ends with an error about 11 s after it last heard the
//      other end's host.
//  REPTLS-3  A handshake succeeds only if both ends speak the same version of the replicas'
//      protocol (encoding.h), which its ALPN names: both ends then know why it failed.
//
// Thread safety: one thread.
#pragma once

#include <asio/ip/tcp.hpp>
#include <asio/ssl/context.hpp>
#include <asio/ssl/stream.hpp>
#include <memory>
#include <string>

#include "server/group/connection/group_secret.h"

namespace rkv::server {

class ReplicaTls {
 public:
  enum class Side : unsigned char { kClient, kServer };  // which calls, which is called

  static Result<std::shared_ptr<ReplicaTls>> make(const GroupSecret& secret, Side side);
  asio::ssl::context& context() { return context_; }
  Side side() const { return side_; }

 private:
  explicit ReplicaTls(Side side);
  Side side_;
  asio::ssl::context context_;
};

// A connection over TCP that is encrypted once its handshake has succeeded.
struct EncryptedStream {
  EncryptedStream(asio::ip::tcp::socket socket, std::shared_ptr<ReplicaTls> with);
  asio::ip::tcp::socket& socket() { return stream.next_layer(); }
  // The handshake proved that the other end knows the secret. REQUIRES: the handshake succeeded.
  bool is_proved();
  // The other end named the same protocol. REQUIRES: the handshake succeeded.
  bool is_of_our_version();
  // Ends pending operations with an error. May be called again.
  void close();

  std::shared_ptr<ReplicaTls> tls;
  std::string peer;   // HOST:PORT of the other end
  std::string local;  // HOST:PORT of this end
  asio::ssl::stream<asio::ip::tcp::socket> stream;
};

// "192.0.2.1:7471", "[::1]:7471".
std::string to_text(const asio::ip::tcp::endpoint& endpoint);
// Splits HOST:PORT. False: not such a text. Brackets are taken off an IPv6 address.
bool split_address(const std::string& address, std::string& host, std::string& port);

}  // namespace rkv::server
