// The data that both ends of a message transport exchange in the private data of the connection
// manager's messages: 56 bytes, the most that a request can carry.
//
//   bytes  0- 3  magic "RKVM"
//          4- 5  version, 1: any other ends the connection with kVersionMismatch
//          6     kind of transport
//          7     flags (rings): bit 0, doorbells carry a sequence number; bit 1, the ring's key
//                comes later, in the first message; the others are 0
//          8-11  longest message
//         12-15  messages that may be held
//         16-35  the ring that the peer writes into: address, length, key (RemoteSpan)
//         36-47  0; not looked at
//         48-55  checksum over bytes 0 to 47
// Integers are little-endian, except in the RemoteSpan, which has its own form.
//
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>

#include "rkv/rdma/cm.h"
#include "rkv/rdma/memory.h"
#include "rkv/result.h"

namespace rkv::rdma::detail {

enum class TransportKind : std::uint8_t { kSendReceive = 1, kCreditRing = 2 };

struct Token {
  static constexpr std::size_t kBytes = 56;
  static constexpr std::uint16_t kVersion = 1;

  TransportKind kind = TransportKind::kSendReceive;
  bool sequenced = false;
  bool key_follows = false;
  std::uint32_t max_message = 0;
  std::uint32_t slots = 0;
  RemoteSpan ring = {};
  friend bool operator==(const Token&, const Token&) = default;
};
static_assert(Token::kBytes <= kConnectRequestBytes && Token::kBytes <= kConnectReplyBytes);

std::array<std::byte, Token::kBytes> encode(const Token& token);
// Decodes bytes from a peer, padded or not. kCorrupt: too short, no magic, wrong checksum, values
// out of range; kVersionMismatch: another version or kind.
Result<Token> decode(Bytes bytes, TransportKind expected);

// Encodes the reason of a rejection, and converts it into the error for the rejected side.
std::array<std::byte, 8> refusal(const Error& why);
Error understand_refusal(const Error& rejected, Bytes reason);

}  // namespace rkv::rdma::detail
