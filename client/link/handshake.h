// Handshake: what a client and a server say to each other before a connection is used. It makes the
// client's requests and judges the server's answers. Link sends the requests and connects.
//
// A client without a user sends one request. A client with a user sends two: the first asks for a
// challenge, which the server sends as a rejection; the second proves that the client knows the
// user's secret. The accept then proves that the server knows the user.
//
// Thread safety: none. Nothing blocks.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "client/link/credentials.h"
#include "common/wire.h"
#include "rdma/transport/transport.h"

namespace rkv::client {

class Handshake {
 public:
  using Hello = std::array<std::byte, kConnectRequestBytes>;

  // nullopt: the client has no user. The credentials must outlive the handshake.
  explicit Handshake(const std::optional<Credentials>& credentials) : credentials_(credentials) {}

  // Begins an attempt to connect, and forgets the last refusal. `request` names no user: that is
  // added here. Its name must stay valid until the attempt has ended.
  void begin(const ConnectRequest& request);
  // Returns the request to send next, encoded.
  Hello hello() const;
  // Whether that request asks for a challenge. No server should accept it, so it grants nothing.
  bool asks_for_challenge() const { return credentials_ && !has_proof_; }

  // The connection with hello() failed with `error`. Success: the server has sent a challenge, and
  // hello() has the proof: send it. That happens once in an attempt. Otherwise the attempt is over.
  // kVersionMismatch, kCorrupt: the peer is not a compatible kvserver. kUnreachable: no program
  // read the request. kNotPrimary: see named_primary(). Errors other than kRejected are returned as
  // they are.
  Status on_refused(const Error& error, const rdma::Rejection& rejection);
  // The server has accepted hello() with these bytes. Returns what it grants. After an error the
  // connection must be closed. kUnauthenticated: the server has not proved to know the user.
  Result<ConnectAccept> on_accepted(Bytes bytes) const;

  // The server's sentence of the last refusal, or empty.
  const std::string& refusal() const { return refusal_; }
  // After kNotPrimary: the primary that the server named, or empty. It comes from a peer, but is a
  // valid address.
  const std::string& named_primary() const { return named_primary_; }

 private:
  void prove(const Challenge& challenge, const std::string& called);
  Status reason_of(const ConnectReject& reject, const std::string& called);
  // The claim of the request's proof.
  Claim claim() const;

  const std::optional<Credentials>& credentials_;
  ConnectRequest request_;
  bool has_proof_ = false;
  Proof cookie_{};      // of the challenge
  std::string called_;  // the address that the challenged request went to
  std::string refusal_;
  std::string named_primary_;
};

}  // namespace rkv::client
