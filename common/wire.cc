#include "common/wire.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "common/auth/proof.h"
#include "common/check.h"
#include "common/pack.h"
#include "common/parse.h"
#include "common/scan.h"

namespace rkv {

namespace {

// The first eight bytes of all private data: magic 4, version 2, length 2.
void put_preamble(MutableBytes out, std::size_t length) {
  std::memset(out.data(), 0, length);
  store_le(out.data(), kWireMagic);
  store_le(out.data() + 4, kWireVersion);
  store_le(out.data() + 6, static_cast<std::uint16_t>(length));
}

// Reserved bytes must be zero, so that they can be given a meaning later (WIRE-1).
Status check_reserved(Bytes bytes, std::size_t from, std::size_t length) {
  for (const std::byte b : bytes.subspan(from, length)) {
    if (b != std::byte{0}) return fail(Code::kCorrupt, "reserved bytes of the peer's data are set");
  }
  return {};
}

// An error's text must be static, so there is a sentence for each version that a peer may speak.
using Sentence = std::array<char, 128>;
constexpr std::size_t kVersionSentences = 100;

constexpr Sentence version_sentence(std::string_view peer, std::string_view here,
                                    std::size_t version) {
  Sentence sentence{};
  std::size_t at = 0;
  const auto add = [&](std::string_view text) {
    for (const char c : text)
      sentence.at(at++) = c;
  };
  const auto add_number = [&](std::size_t number) {
    if (number >= 10) sentence.at(at++) = static_cast<char>('0' + number / 10);
    sentence.at(at++) = static_cast<char>('0' + number % 10);
  };
  add(peer);
  if (version + 1 < kVersionSentences) {
    add(" speaks version ");
    add_number(version);
  } else {
    add(" speaks an unknown version");
  }
  add(" of the wire format, and ");
  add(here);
  add(" version ");
  add_number(kWireVersion);
  add(": install the same rkv on both sides");
  return sentence;
}

constexpr std::array<Sentence, kVersionSentences> version_sentences(std::string_view peer,
                                                                    std::string_view here) {
  std::array<Sentence, kVersionSentences> all{};
  for (std::size_t version = 0; version < all.size(); ++version)
    all[version] = version_sentence(peer, here, version);
  return all;
}

// Texts about a peer that does not speak this protocol, or speaks another version of it.
struct PeerTexts {
  const char* stranger;
  std::array<Sentence, kVersionSentences> other_version;
};
constexpr PeerTexts kServer = {
    .stranger = "the peer does not speak rkv: check that the address and port are a kvserver's",
    .other_version = version_sentences("the server", "this client")};
constexpr PeerTexts kClient = {.stranger = "the client's data is not an rkv connection request",
                               .other_version = version_sentences("the client", "this server")};

// Checks the preamble. A later version may be longer than `least`, never shorter.
Status check_preamble(Bytes bytes, std::size_t least, const PeerTexts& texts = kServer) {
  if (bytes.size() < 8 || load_le<std::uint32_t>(bytes.data()) != kWireMagic) {
    return fail(Code::kCorrupt, texts.stranger);
  }
  const std::size_t version = load_le<std::uint16_t>(bytes.data() + 4);
  if (version != kWireVersion) {
    return fail(Code::kVersionMismatch,
                texts.other_version[std::min(version, kVersionSentences - 1)].data());
  }
  const std::size_t length = load_le<std::uint16_t>(bytes.data() + 6);
  if (length < least || length > bytes.size()) {
    return fail(Code::kCorrupt, "connection data has a wrong length");
  }
  return {};
}

void put_window(std::byte* out, const RemoteWindow& window) {
  store_le(out, window.address);
  store_le(out + 8, window.remote_key);
  store_le(out + 12, window.length);
}
RemoteWindow get_window(const std::byte* from) {
  return {.address = load_le<std::uint64_t>(from),
          .remote_key = load_le<std::uint32_t>(from + 8),
          .length = load_le<std::uint32_t>(from + 12)};
}

constexpr std::size_t kNameBytes = 24;
constexpr std::uint32_t kSentUnitBytes = 64;  // unit of max_sent_bytes in an accept
static_assert(kMaxMessageBytes % kSentUnitBytes == 0 &&
              kMaxMessageBytes / kSentUnitBytes <= 0xFFFF);
constexpr std::size_t kRejectTextOffset = 12;
constexpr std::size_t kChallengeBytes = 8 + kProofBytes;
// The kind of data that follows the text of a reject.
constexpr std::uint8_t kNothingFollows = 0;
constexpr std::uint8_t kChallengeFollows = 1;
constexpr std::uint8_t kPrimaryFollows = 2;
// A bit of the credits wanted: servers that do not know it grant as many credits as they have.
constexpr std::uint16_t kChecksGroup = std::uint16_t{1} << 15;
// Kinds of connection requests.
constexpr std::uint8_t kWithName = 0;
constexpr std::uint8_t kWithUser = 1;

Proof get_proof(const std::byte* from) {
  Proof proof;
  std::copy_n(from, proof.size(), proof.begin());
  return proof;
}

// Request: kind 1 at 10. With a name: name 24 at 32. With a user: number 4 at 12, stamp 8 at 32,
// proof 16 at 40.
void put_user(const ConnectRequest& request, MutableBytes out) {
  store_le(out.data() + 10, kWithUser);
  store_le(out.data() + 12, request.user);
  store_le(out.data() + 32, request.stamp);
  if (request.stamp != 0) std::ranges::copy(request.proof, out.data() + 40);
}

Status get_user(Bytes bytes, ConnectRequest& request) {
  RKV_RETURN_IF_ERROR(check_reserved(bytes, 11, 1));
  request.user = load_le<std::uint32_t>(bytes.data() + 12);
  request.stamp = load_le<std::uint64_t>(bytes.data() + 32);
  request.proof = get_proof(bytes.data() + 40);
  if (request.user == 0) return fail(Code::kCorrupt, "the client's data names no user");
  return request.stamp != 0 ? Status{} : check_reserved(bytes, 40, kProofBytes);
}

Status get_name(Bytes bytes, ConnectRequest& request) {
  RKV_RETURN_IF_ERROR(check_reserved(bytes, 10, 6));
  const std::string_view field = as_text(bytes.subspan(32, kNameBytes));
  request.name = field.substr(0, field.find('\0'));
  return check_reserved(bytes, 32 + request.name.size(), kNameBytes - request.name.size());
}

}  // namespace

std::size_t encode(const ConnectRequest& request, MutableBytes out) {
  put_preamble(out, kConnectRequestBytes);
  RKV_CHECK(request.credits_wanted < kChecksGroup, "more credits wanted than can be encoded");
  store_le(out.data() + 8, request.credits_field());
  store_le(out.data() + 16, request.session_to_resume);
  store_le(out.data() + 24, request.client_nonce);
  if (request.user != 0) {
    put_user(request, out);
    return kConnectRequestBytes;
  }
  const std::string_view name = request.name.substr(0, kNameBytes);
  std::copy(name.begin(), name.end(), reinterpret_cast<char*>(out.data()) + 32);
  return kConnectRequestBytes;
}

Result<ConnectRequest> decode_connect_request(Bytes bytes) {
  RKV_RETURN_IF_ERROR(check_preamble(bytes, kConnectRequestBytes, kClient));
  const auto credits = load_le<std::uint16_t>(bytes.data() + 8);
  ConnectRequest request{.credits_wanted = static_cast<std::uint16_t>(credits & ~kChecksGroup),
                         .checks_group = (credits & kChecksGroup) != 0,
                         .session_to_resume = load_le<std::uint64_t>(bytes.data() + 16),
                         .client_nonce = load_le<std::uint64_t>(bytes.data() + 24)};
  const bool with_user = load_le<std::uint8_t>(bytes.data() + 10) == kWithUser;
  RKV_RETURN_IF_ERROR(with_user ? get_user(bytes, request) : get_name(bytes, request));
  return request;
}

std::size_t encode(const ConnectAccept& accept, MutableBytes out) {
  const std::size_t length = accept.answer ? kConnectAcceptMaxBytes : kConnectAcceptBytes;
  put_preamble(out, length);
  store_le(out.data() + 8, accept.epoch);
  store_le(out.data() + 16, accept.session);
  store_le(out.data() + 24, accept.credits);
  RKV_CHECK(accept.max_sent_bytes % kSentUnitBytes == 0, "the limit is a multiple of its unit");
  store_le(out.data() + 26, static_cast<std::uint16_t>(accept.max_sent_bytes / kSentUnitBytes));
  store_le(out.data() + 28, accept.max_message_bytes);
  put_window(out.data() + 32, accept.root);
  put_window(out.data() + 48, accept.hints);
  put_window(out.data() + 64, accept.counters);
  store_le(out.data() + 80, accept.server_us);
  store_le(out.data() + 88, accept.max_packed);
  store_le(out.data() + 90, static_cast<std::uint8_t>(accept.in_group ? 1 : 0));
  store_le(out.data() + 92, accept.store);
  if (accept.answer) std::ranges::copy(*accept.answer, out.data() + kConnectAnswerOffset);
  return length;
}

Result<ConnectAccept> decode_connect_accept(Bytes bytes) {
  RKV_RETURN_IF_ERROR(check_preamble(bytes, kConnectAcceptLeastBytes));
  ConnectAccept accept{.epoch = load_le<std::uint64_t>(bytes.data() + 8),
                       .session = load_le<std::uint64_t>(bytes.data() + 16),
                       .credits = load_le<std::uint16_t>(bytes.data() + 24),
                       .max_message_bytes = load_le<std::uint32_t>(bytes.data() + 28),
                       .max_sent_bytes = load_le<std::uint16_t>(bytes.data() + 26) * kSentUnitBytes,
                       .root = get_window(bytes.data() + 32),
                       .hints = get_window(bytes.data() + 48),
                       .counters = get_window(bytes.data() + 64),
                       .server_us = load_le<std::uint64_t>(bytes.data() + 80)};
  const std::size_t length = load_le<std::uint16_t>(bytes.data() + 6);
  if (length > kConnectAcceptLeastBytes && length < kConnectAcceptBytes) {
    return fail(Code::kCorrupt, "connection data has a wrong length");
  }
  if (length >= kConnectAcceptBytes) {
    accept.max_packed = load_le<std::uint16_t>(bytes.data() + 88);
    const auto in_group = load_le<std::uint8_t>(bytes.data() + 90);
    accept.in_group = in_group == 1;
    accept.store = load_le<std::uint32_t>(bytes.data() + 92);
    RKV_RETURN_IF_ERROR(check_reserved(bytes, in_group > 1 ? 90 : 91, 1));
  }
  if (length >= kConnectAcceptMaxBytes) {
    accept.answer = get_proof(bytes.data() + kConnectAnswerOffset);
  }
  if (accept.epoch == 0 || accept.credits == 0 || accept.root.length < kRootPageBytes ||
      accept.max_message_bytes < kResponseHeaderBytes ||
      accept.max_sent_bytes < kRequestHeaderBytes + kMessageSourceBytes ||
      accept.max_sent_bytes > accept.max_message_bytes) {
    return fail(Code::kCorrupt, "the server's connection data is invalid");
  }
  return accept;
}

bool is_server_address(std::string_view text) {
  if (text.size() > kMaxServerAddressBytes) return false;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon);
  const auto is_allowed = [](char c) { return c > ' ' && c <= '~' && c != ',' && c != '"'; };
  if (!std::ranges::all_of(host, is_allowed)) return false;
  const bool is_bracketed = host.front() == '[' && host.back() == ']';
  if (is_bracketed ? host.size() < 3 : host.contains(':')) return false;
  return parse_number<std::uint16_t>(text.substr(colon + 1), 1).has_value();
}

std::size_t encode(const ConnectReject& reject, MutableBytes out) {
  const std::string_view primary =
      reject.challenge || !is_server_address(reject.primary) ? std::string_view() : reject.primary;
  const std::size_t challenge = reject.challenge ? kChallengeBytes : 0;
  const std::size_t follows = primary.empty() ? challenge : 1 + primary.size();
  const std::size_t text =
      std::min(reject.text.size(), kConnectRejectMaxBytes - kRejectTextOffset - follows);
  const std::size_t length = kRejectTextOffset + text + follows;
  put_preamble(out, length);
  store_le(out.data() + 8, static_cast<std::uint8_t>(reject.code));
  store_le(out.data() + 9, reject.challenge  ? kChallengeFollows
                           : primary.empty() ? kNothingFollows
                                             : kPrimaryFollows);
  store_le(out.data() + 10, static_cast<std::uint16_t>(text));
  std::copy_n(reject.text.begin(), text, reinterpret_cast<char*>(out.data()) + kRejectTextOffset);
  std::byte* const at = out.data() + kRejectTextOffset + text;
  if (reject.challenge) {
    store_le(at, reject.challenge->stamp);
    std::ranges::copy(reject.challenge->cookie, at + 8);
  } else if (!primary.empty()) {
    store_le(at, static_cast<std::uint8_t>(primary.size()));
    std::ranges::copy(as_bytes(primary), at + 1);
  }
  return length;
}

Result<ConnectReject> decode_connect_reject(Bytes bytes) {
  RKV_RETURN_IF_ERROR(check_preamble(bytes, kRejectTextOffset));
  const auto follows = load_le<std::uint8_t>(bytes.data() + 9);
  if (follows > kPrimaryFollows) RKV_RETURN_IF_ERROR(check_reserved(bytes, 9, 1));
  const std::size_t text = load_le<std::uint16_t>(bytes.data() + 10);
  const std::size_t least = follows == kChallengeFollows ? kChallengeBytes
                            : follows == kPrimaryFollows ? 1
                                                         : 0;
  if (text + least > bytes.size() - kRejectTextOffset) {
    return fail(Code::kCorrupt, "the server's refusal has a wrong length");
  }
  ConnectReject reject{.code = static_cast<Code>(load_le<std::uint8_t>(bytes.data() + 8)),
                       .text = as_text(bytes.subspan(kRejectTextOffset, text))};
  const Bytes rest = bytes.subspan(kRejectTextOffset + text);
  if (follows == kChallengeFollows) {
    reject.challenge = Challenge{.stamp = load_le<std::uint64_t>(rest.data()),
                                 .cookie = get_proof(rest.data() + 8)};
  } else if (follows == kPrimaryFollows) {
    const std::size_t length = load_le<std::uint8_t>(rest.data());
    if (length > rest.size() - 1) {
      return fail(Code::kCorrupt, "the server's refusal has a wrong length");
    }
    reject.primary = as_text(rest.subspan(1, length));
    if (!is_server_address(reject.primary)) {
      return fail(Code::kCorrupt, "the server's refusal names no address of a primary");
    }
  }
  return reject;
}

// Request: opcode 1, condition 1, key length 2, value length 4, sequence 8, version 8, time to
//          live 8, begin-by 6, durability 1, until 1; key; value.
std::size_t encode(const Request& request, MutableBytes out) {
  const std::size_t total = kRequestHeaderBytes + request.key.size() + request.value.size();
  RKV_CHECK(request.key.size() <= kMaxKeyBytes && request.value.size() <= kMaxInlineBytes &&
                out.size() >= total,
            "request larger than its buffer");
  std::memset(out.data(), 0, kRequestHeaderBytes);
  store_le(out.data(), static_cast<std::uint8_t>(request.opcode));
  store_le(out.data() + 1, static_cast<std::uint8_t>(request.condition));
  store_le(out.data() + 2, static_cast<std::uint16_t>(request.key.size()));
  store_le(out.data() + 4, static_cast<std::uint32_t>(request.value.size()));
  store_le(out.data() + 8, request.sequence);
  store_le(out.data() + 16, request.expected.bits);
  store_le(out.data() + 24, request.ttl_ms);
  store_le(out.data() + 32, request.begin_by_us % kBeginByModulus);
  store_le(out.data() + 38, static_cast<std::uint8_t>(request.durability));
  store_le(out.data() + 39, static_cast<std::uint8_t>(request.until));
  std::byte* next = out.data() + kRequestHeaderBytes;
  if (!request.key.empty()) std::memcpy(next, request.key.data(), request.key.size());
  next += request.key.size();
  if (!request.value.empty()) std::memcpy(next, request.value.data(), request.value.size());
  return total;
}

namespace {

Status check_request(const Request& request, Bytes header, std::size_t message_bytes) {
  const std::size_t claimed = kRequestHeaderBytes + load_le<std::uint16_t>(header.data() + 2) +
                              std::size_t{load_le<std::uint32_t>(header.data() + 4)};
  if (claimed != message_bytes) {
    return fail(Code::kInvalidArgument, "the lengths in the request do not add up to its size");
  }
  if (request.durability > kLastDurability || load_le<std::uint8_t>(header.data() + 39) > 1) {
    return fail(Code::kInvalidArgument, "reserved bits of the request are set");
  }
  return {};
}

Status check_condition(const Request& request) {
  const Condition condition = request.condition;
  const OpcodeTraits& traits = traits_of(request.opcode);
  const bool allowed =
      condition == Condition::kNone ||
      (condition == Condition::kIfAbsent && traits.puts && request.opcode != Opcode::kTouch) ||
      (condition == Condition::kIfVersion && (traits.puts || request.opcode == Opcode::kRemove));
  const bool takes_version =
      condition == Condition::kIfVersion || request.opcode == Opcode::kOutcome;
  if (!allowed || (!takes_version && request.expected.bits != 0)) {
    return fail(Code::kInvalidArgument, "the operation does not support this condition");
  }
  if (request.ttl_ms != 0 && !traits.puts) {
    return fail(Code::kInvalidArgument, "the operation does not support a time to live");
  }
  if (request.until && request.ttl_ms == 0) {
    return fail(Code::kInvalidArgument, "the expiry time of the key is missing");
  }
  if (request.durability != Durability::kDefault && !traits.takes_durability) {
    return fail(Code::kInvalidArgument, "the operation does not support a durability");
  }
  if (request.ttl_ms > kMaxTtlMs) {
    return fail(Code::kInvalidArgument, "a time to live must be at most 2^42 milliseconds");
  }
  return {};
}

Status check_request_sizes(const Request& request, std::size_t key, std::size_t value) {
  if (!is_known(request.opcode)) {
    return fail(Code::kInvalidArgument, "unknown operation");
  }
  const OpcodeTraits& traits = traits_of(request.opcode);
  if (traits.takes_key && key == 0) return fail(Code::kInvalidArgument, "the key is empty");
  if (key > kMaxKeyBytes) return fail(Code::kTooLarge, "the key is longer than 1024 bytes");
  if (value > kMaxInlineBytes) {
    return fail(Code::kTooLarge, "the value is too long to be sent in a request (128 KiB)");
  }
  const bool fits = traits.value_bytes == OpcodeTraits::kAnyLength || value == traits.value_bytes;
  if ((!traits.takes_key && key != 0) || !fits) {
    return fail(Code::kInvalidArgument, "the operation takes no key, or another value");
  }
  return check_condition(request);
}

// Checks the contents of a value if more than its length is constrained.
Status check_value(const Request& request) {
  switch (request.opcode) {
    case Opcode::kGet:
      if (request.value.size() <= kMaxUsedHashes * 8 && request.value.size() % 8 == 0) return {};
      return fail(Code::kInvalidArgument, "the operation takes no key, or another value");
    case Opcode::kPutLarge: {
      const auto source = decode_value_source(request.value);
      return source ? Status{} : Status(std::unexpected(source.error()));
    }
    case Opcode::kLong: {
      const auto source = decode_message_source(request.value);
      return source ? Status{} : Status(std::unexpected(source.error()));
    }
    case Opcode::kOpenCounter:
      if (load_le<std::uint8_t>(request.value.data()) <= 1) return {};
      return fail(Code::kInvalidArgument, "the create flag of a counter must be 0 or 1");
    case Opcode::kBackup:
      if (is_backup_name(as_text(request.value))) return {};
      return fail(Code::kInvalidArgument,
                  "a backup's name must have 1 to 128 letters, digits, '.', '_' and '-', and "
                  "begins with a letter, digit or '_'");
    case Opcode::kScan: {
      const auto query = decode_scan_query(request.value);
      return query ? Status{} : Status(std::unexpected(query.error()));
    }
    case Opcode::kPack:
      return PackReader(request.value).check();
    case Opcode::kOutcome: {
      const auto write = decode_write_id(request.value);
      return write ? Status{} : Status(std::unexpected(write.error()));
    }
    default:
      if (!traits_of(request.opcode).administers || is_user_name(as_text(request.value))) return {};
      return fail(Code::kInvalidArgument,
                  "a name must have 1 to 64 letters, digits, '.', '_' and '-', and begin with a "
                  "letter, digit or '_'");
  }
}

}  // namespace

bool is_backup_name(std::string_view name) {
  const auto is_one_of_these = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxBackupNameBytes && name.front() != '.' &&
         name.front() != '-' && std::ranges::all_of(name, is_one_of_these);
}

Result<Request> decode_request(Bytes bytes, std::uint64_t* sequence) {
  if (bytes.size() < kRequestHeaderBytes) {
    return fail(Code::kInvalidArgument, "the request is shorter than its header");
  }
  Request request{.opcode = static_cast<Opcode>(load_le<std::uint8_t>(bytes.data())),
                  .sequence = load_le<std::uint64_t>(bytes.data() + 8),
                  .condition = static_cast<Condition>(load_le<std::uint8_t>(bytes.data() + 1)),
                  .expected = {load_le<std::uint64_t>(bytes.data() + 16)},
                  .ttl_ms = load_le<std::uint64_t>(bytes.data() + 24),
                  .until = load_le<std::uint8_t>(bytes.data() + 39) != 0,
                  .begin_by_us = load_le<std::uint64_t>(bytes.data() + 32) % kBeginByModulus,
                  .durability = static_cast<Durability>(load_le<std::uint8_t>(bytes.data() + 38))};
  *sequence = request.sequence;
  RKV_RETURN_IF_ERROR(check_request(request, bytes.first(kRequestHeaderBytes), bytes.size()));
  const std::size_t key = load_le<std::uint16_t>(bytes.data() + 2);
  const std::size_t value = load_le<std::uint32_t>(bytes.data() + 4);
  RKV_RETURN_IF_ERROR(check_request_sizes(request, key, value));
  request.key = bytes.subspan(kRequestHeaderBytes, key);
  request.value = bytes.subspan(kRequestHeaderBytes + key, value);
  RKV_RETURN_IF_ERROR(check_value(request));
  return request;
}

Status check_operation(const Request& operation) {
  RKV_RETURN_IF_ERROR(check_request_sizes(operation, operation.key.size(), operation.value.size()));
  return check_value(operation);
}

// ValueSource: address 8, rkey 4, length 4, digest 8.
void encode(const ValueSource& source, MutableBytes out) {
  store_le(out.data(), source.address);
  store_le(out.data() + 8, source.remote_key);
  store_le(out.data() + 12, source.length);
  store_le(out.data() + 16, source.digest);
}

Result<ValueSource> decode_value_source(Bytes bytes) {
  const ValueSource source{.address = load_le<std::uint64_t>(bytes.data()),
                           .remote_key = load_le<std::uint32_t>(bytes.data() + 8),
                           .length = load_le<std::uint32_t>(bytes.data() + 12),
                           .digest = load_le<std::uint64_t>(bytes.data() + 16)};
  if (source.length > kMaxValueBytes) {
    return fail(Code::kTooLarge, "the value is longer than 16 MiB");
  }
  if (!is_large(source.length)) {
    return fail(Code::kInvalidArgument, "a value of up to 128 KiB must be sent in the request");
  }
  return source;
}

// MessageSource: address 8, rkey 4, length 4.
void encode(const MessageSource& source, MutableBytes out) {
  store_le(out.data(), source.address);
  store_le(out.data() + 8, source.remote_key);
  store_le(out.data() + 12, source.length);
}

Result<MessageSource> decode_message_source(Bytes bytes) {
  const MessageSource source{.address = load_le<std::uint64_t>(bytes.data()),
                             .remote_key = load_le<std::uint32_t>(bytes.data() + 8),
                             .length = load_le<std::uint32_t>(bytes.data() + 12)};
  if (source.length > kMaxMessageBytes) {
    return fail(Code::kTooLarge, "the request is longer than any message");
  }
  if (source.length < kRequestHeaderBytes) {
    return fail(Code::kInvalidArgument, "the request is shorter than its header");
  }
  return source;
}

// WriteId: session 8, sequence 8.
void encode(const WriteId& write, MutableBytes out) {
  store_le(out.data(), write.session);
  store_le(out.data() + 8, write.sequence);
}

Result<WriteId> decode_write_id(Bytes bytes) {
  const WriteId write{.session = load_le<std::uint64_t>(bytes.data()),
                      .sequence = load_le<std::uint64_t>(bytes.data() + 8)};
  if (write.session == 0 || write.sequence == 0) {
    return fail(Code::kInvalidArgument, "the session and the sequence of a write must not be 0");
  }
  return write;
}

// Response: opcode 1, code 1, flags 1, reserved 1, value length 4, sequence 8, version 8, expiry 8,
//           slot or (with a code) retry after 8, wal mark 8, sync mark 8, server's clock 8; value.
std::size_t encode(const Response& response, MutableBytes out) {
  const std::size_t total = kResponseHeaderBytes + response.value.size();
  RKV_CHECK(out.size() >= total, "response larger than its buffer");
  std::memset(out.data(), 0, kResponseHeaderBytes);
  store_le(out.data(), static_cast<std::uint8_t>(response.opcode));
  store_le(out.data() + 1, response.code);
  store_le(out.data() + 2, response.flags);
  store_le(out.data() + 4, static_cast<std::uint32_t>(response.value.size()));
  store_le(out.data() + 8, response.sequence);
  store_le(out.data() + 16, response.version.bits);
  store_le(out.data() + 24, response.expiry_ms);
  store_le(out.data() + 32,
           response.code == 0 ? response.slot.bits : std::uint64_t{response.retry_after_ms});
  store_le(out.data() + 40, response.wal_mark.bits);
  store_le(out.data() + 48, response.sync_mark.bits);
  store_le(out.data() + 56, response.server_us);
  if (!response.value.empty()) {
    std::memcpy(out.data() + kResponseHeaderBytes, response.value.data(), response.value.size());
  }
  return total;
}

Status check_response(const Response& response) {
  const bool is_get = response.opcode == Opcode::kGet;
  constexpr unsigned kKnown = Response::kInNeighbour | Response::kCounter | Response::kSwapped |
                              Response::kByRead | Response::kMayHaveHappened | Response::kInCell;
  const bool in_doubt = (response.flags & Response::kMayHaveHappened) != 0;
  if ((response.flags & ~kKnown) != 0 || (in_doubt && response.code == 0)) {
    return fail(Code::kCorrupt, "the server's answer has unknown flags");
  }
  const bool has_number = response.opcode == Opcode::kAdd || response.opcode == Opcode::kSwap ||
                          (response.flags & Response::kCounter) != 0;
  if (response.code == 0 && has_number && response.value.size() != kCounterBytes) {
    return fail(Code::kCorrupt, "the server's answer lacks the number");
  }
  if (response.code == 0 && response.opcode == Opcode::kOpenCounter &&
      response.value.size() != kCellAnswerBytes) {
    return fail(Code::kCorrupt, "the server's answer does not say where the counter is");
  }
  if (response.code == 0 && response.opcode == Opcode::kRevoke &&
      response.value.size() != kRevokeAnswerBytes) {
    return fail(Code::kCorrupt, "the server's answer does not say how many sessions were ended");
  }
  if ((response.flags & Response::kByRead) != 0 && (!is_get || response.slot.empty())) {
    return fail(Code::kCorrupt, "the server's answer does not say where the value is");
  }
  if (response.code == 0 && response.opcode == Opcode::kScan &&
      response.value.size() < kScanPageHeaderBytes) {
    return fail(Code::kCorrupt, "the server's answer lacks the page");
  }
  return {};
}

Result<Response> decode_response(Bytes bytes) {
  if (bytes.size() < kResponseHeaderBytes ||
      load_le<std::uint32_t>(bytes.data() + 4) != bytes.size() - kResponseHeaderBytes) {
    return fail(Code::kCorrupt, "the server's answer has a wrong length");
  }
  const auto code = load_le<std::uint8_t>(bytes.data() + 1);
  const Response response{
      .opcode = static_cast<Opcode>(load_le<std::uint8_t>(bytes.data())),
      .code = code,
      .flags = load_le<std::uint8_t>(bytes.data() + 2),
      .sequence = load_le<std::uint64_t>(bytes.data() + 8),
      .version = {load_le<std::uint64_t>(bytes.data() + 16)},
      .slot = {code == 0 ? load_le<std::uint64_t>(bytes.data() + 32) : 0},
      .expiry_ms = load_le<std::uint64_t>(bytes.data() + 24),
      .retry_after_ms = code == 0 ? 0 : load_le<std::uint32_t>(bytes.data() + 32),
      .wal_mark = {load_le<std::uint64_t>(bytes.data() + 40)},
      .sync_mark = {load_le<std::uint64_t>(bytes.data() + 48)},
      .server_us = load_le<std::uint64_t>(bytes.data() + 56),
      .value = bytes.subspan(kResponseHeaderBytes)};
  if (!is_known(response.opcode)) {
    return fail(Code::kCorrupt, "the server's answer names an unknown operation");
  }
  RKV_RETURN_IF_ERROR(check_response(response));
  if (response.wal_mark < response.sync_mark) {
    return fail(Code::kCorrupt, "the server's answer claims more synced than written");
  }
  RKV_RETURN_IF_ERROR(check_reserved(bytes, 3, 1));
  if (code != 0) RKV_RETURN_IF_ERROR(check_reserved(bytes, 36, 4));
  return response;
}

}  // namespace rkv
