#include "rdma/extras/message/token.h"

#include <algorithm>
#include <bit>

#include "common/bytes.h"
#include "common/hash.h"

namespace rkv::rdma::detail {
namespace {

constexpr std::uint32_t kMagic = 0x4D564B52;         // "RKVM"
constexpr std::uint32_t kRefusalMagic = 0x58564B52;  // "RKVX"
constexpr std::size_t kSummedBytes = 48;
constexpr std::uint32_t kMaxMessage = 1U << 24;
constexpr std::uint32_t kMaxSlots = 1U << 15;
constexpr std::uint64_t kMinRing = 4096;
constexpr std::uint64_t kMaxRing = 1U << 30;

std::uint64_t checksum(const std::byte* token) {
  return xxh3(Bytes(token, kSummedBytes), kMagic);
}

bool wraps(const RemoteSpan& span) {
  return span.address > ~std::uint64_t{0} - span.length;
}

Status check_ring(const Token& token) {
  const RemoteSpan& ring = token.ring;
  if (!std::has_single_bit(ring.length) || ring.length < kMinRing || ring.length > kMaxRing) {
    return fail(Code::kCorrupt, "the peer's ring is not a power of two from 4 KiB to 1 GiB");
  }
  if (wraps(ring) || ring.address % 64 != 0) {
    return fail(Code::kCorrupt, "the peer's ring is not aligned, or wraps around");
  }
  if (!std::has_single_bit(token.slots)) {
    return fail(Code::kCorrupt, "the peer's number of messages is not a power of two");
  }
  return {};
}

}  // namespace

std::array<std::byte, Token::kBytes> encode(const Token& token) {
  std::array<std::byte, Token::kBytes> out{};
  store_le(out.data(), kMagic);
  store_le(out.data() + 4, Token::kVersion);
  out[6] = static_cast<std::byte>(token.kind);
  out[7] = static_cast<std::byte>((token.sequenced ? 1 : 0) | (token.key_follows ? 2 : 0));
  store_le(out.data() + 8, token.max_message);
  store_le(out.data() + 12, token.slots);
  std::ranges::copy(token.ring.to_bytes(), out.begin() + 16);
  store_le(out.data() + kSummedBytes, checksum(out.data()));
  return out;
}

Result<Token> decode(Bytes bytes, TransportKind expected) {
  if (bytes.size() < Token::kBytes || load_le<std::uint32_t>(bytes.data()) != kMagic) {
    return fail(Code::kCorrupt, "the peer is not a message transport of this library");
  }
  // Check the version first: the following bytes may have another meaning in another version.
  if (load_le<std::uint16_t>(bytes.data() + 4) != Token::kVersion) {
    return fail(Code::kVersionMismatch, "the peer uses another version of message transports");
  }
  if (load_le<std::uint64_t>(bytes.data() + kSummedBytes) != checksum(bytes.data())) {
    return fail(Code::kCorrupt, "the peer's token has a wrong checksum");
  }
  if (static_cast<std::uint8_t>(bytes[6]) != std::to_underlying(expected)) {
    return fail(Code::kVersionMismatch, "the peer uses another kind of message transport");
  }
  const auto flags = static_cast<std::uint8_t>(bytes[7]);
  Token token{.kind = expected,
              .sequenced = (flags & 1) != 0,
              .key_follows = (flags & 2) != 0,
              .max_message = load_le<std::uint32_t>(bytes.data() + 8),
              .slots = load_le<std::uint32_t>(bytes.data() + 12),
              .ring = RemoteSpan::from_bytes(bytes.subspan<16, RemoteSpan::kWireBytes>())};
  if (flags > 3) return fail(Code::kCorrupt, "the peer's token has unknown flags");
  if (token.max_message == 0 || token.max_message > kMaxMessage) {
    return fail(Code::kCorrupt, "the peer's longest message is not from 1 to 16777216 bytes");
  }
  if (token.slots == 0 || token.slots > kMaxSlots) {
    return fail(Code::kCorrupt, "the peer's number of messages is not from 1 to 32768");
  }
  if (expected != TransportKind::kSendReceive) RKV_RETURN_IF_ERROR(check_ring(token));
  return token;
}

std::array<std::byte, 8> refusal(const Error& why) {
  std::array<std::byte, 8> out{};
  store_le(out.data(), kRefusalMagic);
  out[4] = static_cast<std::byte>(why.code);
  return out;
}

Error understand_refusal(const Error& rejected, Bytes reason) {
  if (rejected.code != Code::kRejected || reason.size() < 5 ||
      load_le<std::uint32_t>(reason.data()) != kRefusalMagic) {
    return rejected;
  }
  Error out = rejected;
  switch (static_cast<Code>(reason[4])) {
    case Code::kVersionMismatch:
      out.code = Code::kVersionMismatch;
      out.text = "the peer is a message transport of another kind or version";
      break;
    case Code::kCorrupt:
      out.code = Code::kCorrupt;
      out.text = "the peer found our token corrupt";
      break;
    default:
      out.text = "the peer refused the connection: it could not make a transport";
      break;
  }
  return out;
}

}  // namespace rkv::rdma::detail
