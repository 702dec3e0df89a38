// The bytes that the two ends of a TCP connection exchange. Numbers are little-endian.
//
// The caller sends a Hello, and the listening end an Answer, both of fixed length. After an Answer
// that accepts, both ends send frames: a Header, then the bytes that belong to its kind.
//
//   kSend                    `length` bytes: a message
//   kRead                    a Target; answered by kData with `length` bytes
//   kCompareSwap, kFetchAdd  a Target and two words; answered by kWord
//   kData, kWord             `length` bytes, 8 of kWord
//   kRefused                 nothing: the oldest request without an answer is refused, and the
//                            sender sends nothing more
//
// Requests are answered in their order. Messages have no answer. If the receiver has no buffer for
// a message, the message and all bytes behind it stay in the socket.
//
// Everything decoded here comes from a peer and is not trusted: decode() checks kinds and lengths,
// and the connection checks what it alone knows.
//
// Thread safety: values and free functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/bytes.h"

namespace rkv::rdma::tcp {

inline constexpr std::uint64_t kMagic = 0x0070'6374'2D76'6B72;  // "rkv-tcp"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kRequestDataBytes = 56;
inline constexpr std::size_t kAcceptDataBytes = 196;
inline constexpr std::size_t kRejectDataBytes = 148;
// The longest message or READ.
inline constexpr std::uint32_t kLongest = std::uint32_t{1} << 30;

struct Hello {
  std::uint32_t version = kVersion;
  // The longest message that the caller takes. A longer one ends the connection.
  std::uint32_t receive_bytes = 0;
  std::array<std::byte, kRequestDataBytes> data{};
};
inline constexpr std::size_t kHelloBytes = 16 + kRequestDataBytes;

struct Answer {
  enum class Kind : std::uint32_t { kAccept = 1, kReject = 2, kWrongVersion = 3 };
  std::uint32_t version = kVersion;
  Kind kind = Kind::kAccept;
  std::uint32_t length = 0;  // kAccept: the longest message; kReject: length of the reason
  std::array<std::byte, kAcceptDataBytes> data{};
};
inline constexpr std::size_t kAnswerBytes = 20 + kAcceptDataBytes;

std::array<std::byte, kHelloBytes> encode(const Hello& hello);
std::array<std::byte, kAnswerBytes> encode(const Answer& answer);
// nullopt: the bytes are not a Hello. A Hello of another version decodes, but only its version is
// meaningful.
std::optional<Hello> decode_hello(Bytes bytes);
std::optional<Answer> decode_answer(Bytes bytes);

enum class Kind : std::uint32_t {
  kSend = 1,
  kRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kData = 5,
  kWord = 6,
  kRefused = 7,
};

struct Header {
  Kind kind = Kind::kSend;
  std::uint32_t length = 0;
};
inline constexpr std::size_t kHeaderBytes = 8;

struct Target {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};
struct AtomicRequest {
  Target target{};
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
};
inline constexpr std::size_t kTargetBytes = 12;
inline constexpr std::size_t kAtomicBytes = kTargetBytes + 16;

void encode(const Header& header, std::byte* to);
void encode(const Target& target, std::byte* to);
void encode(const AtomicRequest& request, std::byte* to);
std::optional<Header> decode_header(const std::byte* from);
Target decode_target(const std::byte* from);
AtomicRequest decode_atomic(const std::byte* from);
// How many bytes behind a header must have come before the frame can be begun.
std::size_t fixed_bytes(Kind kind);

}  // namespace rkv::rdma::tcp
