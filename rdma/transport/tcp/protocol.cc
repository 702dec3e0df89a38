#include "rdma/transport/tcp/protocol.h"

#include <algorithm>

#include "common/bytes.h"

namespace rkv::rdma::tcp {

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  std::array<std::byte, kHelloBytes> out{};
  store_le(out.data(), kMagic);
  store_le(out.data() + 8, hello.version);
  store_le(out.data() + 12, hello.receive_bytes);
  std::ranges::copy(hello.data, out.begin() + 16);
  return out;
}

std::array<std::byte, kAnswerBytes> encode(const Answer& answer) {
  std::array<std::byte, kAnswerBytes> out{};
  store_le(out.data(), kMagic);
  store_le(out.data() + 8, answer.version);
  store_le(out.data() + 12, static_cast<std::uint32_t>(answer.kind));
  store_le(out.data() + 16, answer.length);
  std::ranges::copy(answer.data, out.begin() + 20);
  return out;
}

std::optional<Hello> decode_hello(Bytes bytes) {
  if (bytes.size() != kHelloBytes || load_le<std::uint64_t>(bytes.data()) != kMagic)
    return std::nullopt;
  Hello hello{.version = load_le<std::uint32_t>(bytes.data() + 8),
              .receive_bytes = load_le<std::uint32_t>(bytes.data() + 12)};
  std::ranges::copy(bytes.subspan(16), hello.data.begin());
  if (hello.version == kVersion && (hello.receive_bytes == 0 || hello.receive_bytes > kLongest))
    return std::nullopt;
  return hello;
}

std::optional<Answer> decode_answer(Bytes bytes) {
  if (bytes.size() != kAnswerBytes || load_le<std::uint64_t>(bytes.data()) != kMagic)
    return std::nullopt;
  Answer answer{.version = load_le<std::uint32_t>(bytes.data() + 8),
                .kind = static_cast<Answer::Kind>(load_le<std::uint32_t>(bytes.data() + 12)),
                .length = load_le<std::uint32_t>(bytes.data() + 16)};
  std::ranges::copy(bytes.subspan(20), answer.data.begin());
  if (answer.version != kVersion) return answer;
  const bool accepts =
      answer.kind == Answer::Kind::kAccept && answer.length != 0 && answer.length <= kLongest;
  const bool rejects = answer.kind == Answer::Kind::kReject && answer.length <= kRejectDataBytes;
  return accepts || rejects ? std::optional(answer) : std::nullopt;
}

void encode(const Header& header, std::byte* to) {
  store_le(to, static_cast<std::uint32_t>(header.kind));
  store_le(to + 4, header.length);
}

void encode(const Target& target, std::byte* to) {
  store_le(to, target.address);
  store_le(to + 8, target.key);
}

void encode(const AtomicRequest& request, std::byte* to) {
  encode(request.target, to);
  store_le(to + kTargetBytes, request.compare_or_add);
  store_le(to + kTargetBytes + 8, request.swap);
}

std::optional<Header> decode_header(const std::byte* from) {
  const Header header{.kind = static_cast<Kind>(load_le<std::uint32_t>(from)),
                      .length = load_le<std::uint32_t>(from + 4)};
  switch (header.kind) {
    case Kind::kSend:
    case Kind::kRead:
    case Kind::kData:
      return header.length <= kLongest ? std::optional(header) : std::nullopt;
    case Kind::kCompareSwap:
    case Kind::kFetchAdd:
    case Kind::kWord:
      return header.length == 8 ? std::optional(header) : std::nullopt;
    case Kind::kRefused:
      return header.length == 0 ? std::optional(header) : std::nullopt;
  }
  return std::nullopt;
}

Target decode_target(const std::byte* from) {
  return {.address = load_le<std::uint64_t>(from), .key = load_le<std::uint32_t>(from + 8)};
}

AtomicRequest decode_atomic(const std::byte* from) {
  return {.target = decode_target(from),
          .compare_or_add = load_le<std::uint64_t>(from + kTargetBytes),
          .swap = load_le<std::uint64_t>(from + kTargetBytes + 8)};
}

std::size_t fixed_bytes(Kind kind) {
  switch (kind) {
    case Kind::kRead:
      return kTargetBytes;
    case Kind::kCompareSwap:
    case Kind::kFetchAdd:
      return kAtomicBytes;
    default:
      return 0;
  }
}

}  // namespace rkv::rdma::tcp
