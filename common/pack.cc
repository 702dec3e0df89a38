#include "common/pack.h"

#include <cstring>

#include "common/check.h"

namespace rkv {

namespace {

// Flags of an operation: its condition, and which fields follow.
constexpr unsigned kConditionMask = 3;
constexpr unsigned kHasTtl = 4;
constexpr unsigned kUntil = 8;
constexpr unsigned kOperationFlags = kConditionMask | kHasTtl | kUntil;
// A flag of a result, beside those of Response: an expiry follows.
constexpr std::uint8_t kHasExpiry = 128;
constexpr std::size_t kFieldBytes = 8;  // an optional field

bool has_version(unsigned flags) {
  return (flags & kConditionMask) == static_cast<unsigned>(Condition::kIfVersion);
}

std::byte* copy_in(std::byte* to, Bytes bytes) {
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

std::unexpected<Error> wrong_lengths() {
  return fail(Code::kInvalidArgument, "the lengths or flags in the pack do not add up to its size");
}
std::unexpected<Error> wrong_results() {
  return fail(Code::kCorrupt, "the server's answer does not have the results of the pack");
}

}  // namespace

// ---- operations

// Operation: opcode 1, flags 1, key length 2, value length 4; version 8, time to live 8, each if
//            the flags say so; key; value.
void PackWriter::add(const Request& request) {
  RKV_CHECK(is_packable(request.opcode) && has_room(request), "an operation that fits the pack");
  const unsigned flags = static_cast<unsigned>(request.condition) |
                         (request.ttl_ms != 0 ? kHasTtl : 0U) | (request.until ? kUntil : 0U);
  std::byte* to = out_.data() + bytes_;
  store_le(to, static_cast<std::uint8_t>(request.opcode));
  store_le(to + 1, static_cast<std::uint8_t>(flags));
  store_le(to + 2, static_cast<std::uint16_t>(request.key.size()));
  store_le(to + 4, static_cast<std::uint32_t>(request.value.size()));
  to += kPackedHeaderBytes;
  if (has_version(flags)) {
    store_le(to, request.expected.bits);
    to += kFieldBytes;
  }
  if (request.ttl_ms != 0) {
    store_le(to, request.ttl_ms);
    to += kFieldBytes;
  }
  to = copy_in(copy_in(to, request.key), request.value);
  bytes_ = static_cast<std::size_t>(to - out_.data());
  ++count_;
}

Bytes PackWriter::finish() {
  store_le(out_.data(), static_cast<std::uint16_t>(count_));
  store_le(out_.data() + 2, std::uint16_t{0});
  return out_.first(bytes_);
}

std::optional<std::size_t> PackReader::length_at(std::size_t from) const {
  const std::size_t left = value_.size() - from;
  if (left < kPackedHeaderBytes) return std::nullopt;
  const std::byte* const header = value_.data() + from;
  const unsigned flags = load_le<std::uint8_t>(header + 1);
  if ((flags & ~kOperationFlags) != 0) return std::nullopt;
  const bool has_ttl = (flags & kHasTtl) != 0;
  const std::size_t ttl_at = kPackedHeaderBytes + (has_version(flags) ? kFieldBytes : 0);
  const std::size_t length = ttl_at + (has_ttl ? kFieldBytes : 0) +
                             load_le<std::uint16_t>(header + 2) +
                             std::size_t{load_le<std::uint32_t>(header + 4)};
  if (length > left) return std::nullopt;
  // A writer leaves out a time to live that is 0.
  if (has_ttl && load_le<std::uint64_t>(header + ttl_at) == 0) return std::nullopt;
  return length;
}

Status PackReader::check() const {
  if (value_.size() < kPackHeaderBytes || load_le<std::uint16_t>(value_.data() + 2) != 0) {
    return wrong_lengths();
  }
  if (count() == 0 || count() > kMaxPacked) {
    return fail(Code::kInvalidArgument, "a pack must have 1 to 32 operations");
  }
  std::size_t at = kPackHeaderBytes;
  for (std::size_t i = 0; i < count(); ++i) {
    const auto length = length_at(at);
    if (!length) return wrong_lengths();
    at += *length;
  }
  if (at != value_.size()) return wrong_lengths();
  return {};
}

std::optional<Request> PackReader::next() {
  if (at_ == value_.size()) return std::nullopt;
  const std::byte* from = value_.data() + at_;
  const unsigned flags = load_le<std::uint8_t>(from + 1);
  Request request{.opcode = static_cast<Opcode>(load_le<std::uint8_t>(from)),
                  .condition = static_cast<Condition>(flags & kConditionMask),
                  .until = (flags & kUntil) != 0};
  const std::size_t key = load_le<std::uint16_t>(from + 2);
  const std::size_t value = load_le<std::uint32_t>(from + 4);
  from += kPackedHeaderBytes;
  if (has_version(flags)) {
    request.expected = {load_le<std::uint64_t>(from)};
    from += kFieldBytes;
  }
  if ((flags & kHasTtl) != 0) {
    request.ttl_ms = load_le<std::uint64_t>(from);
    from += kFieldBytes;
  }
  request.key = {from, key};
  request.value = {from + key, value};
  at_ = static_cast<std::size_t>(from - value_.data()) + key + value;
  return request;
}

// ---- results

std::size_t pack_reply_bytes(Bytes message) {
  if (message.size() < kRequestHeaderBytes) return 0;
  PackReader pack(message.subspan(kRequestHeaderBytes));
  if (!pack.check()) return 0;  // it will be refused
  std::size_t bytes = 0;
  while (const auto request = pack.next()) {
    if (request->opcode == Opcode::kGet) return kMaxInlineBytes;
    bytes += least_result_bytes(request->opcode);
  }
  return bytes;
}

Response ResultWriter::refused_alone(Opcode opcode) {
  return {
      .opcode = opcode, .code = static_cast<std::uint8_t>(Code::kBusy), .flags = Response::kAlone};
}

// Result: code 1, flags 1, reserved 2, value length 4, version 8, slot or (with a code) retry
//         after 8; expiry 8 if the flags say so; value.
void ResultWriter::add(const Response& result, std::size_t reserve) {
  const bool expires = result.expiry_ms != 0;
  const std::size_t fixed = kPackedResultBytes + (expires ? kFieldBytes : 0);
  const std::size_t room = out_.size() - bytes_ - reserve;
  Bytes value = result.value;
  if (fixed + value.size() > room) {
    if (result.code == 0) return add(refused_alone(result.opcode), reserve);
    value = {};
  }
  RKV_CHECK(fixed + value.size() <= room, "room for the result");
  std::byte* const to = out_.data() + bytes_;
  store_le(to, result.code);
  store_le(to + 1, static_cast<std::uint8_t>(result.flags | (expires ? kHasExpiry : 0U)));
  store_le(to + 2, std::uint16_t{0});
  store_le(to + 4, static_cast<std::uint32_t>(value.size()));
  store_le(to + 8, result.version.bits);
  store_le(to + 16, result.code == 0 ? result.slot.bits : std::uint64_t{result.retry_after_ms});
  if (expires) store_le(to + kPackedResultBytes, result.expiry_ms);
  copy_in(to + fixed, value);
  bytes_ += fixed + value.size();
}

Bytes outcome_of_pack(std::span<const Request> operations, Bytes results, MutableBytes out) {
  ResultReader reader(results);
  ResultWriter writer(out);
  for (const Request& operation : operations) {
    const auto read = reader.next(operation.opcode);
    RKV_CHECK(read.has_value(), "the results of these operations");
    Response result = *read;
    if (operation.opcode == Opcode::kGet) result = ResultWriter::refused_alone(operation.opcode);
    if (result.code != 0) result.value = {};
    writer.add(result, 0);
  }
  return writer.finish();
}

Result<Response> ResultReader::next(Opcode opcode) {
  if (value_.size() < kPackedResultBytes) return wrong_results();
  const std::byte* const from = value_.data();
  const auto flags = load_le<std::uint8_t>(from + 1);
  const bool expires = (flags & kHasExpiry) != 0;
  const std::size_t fixed = kPackedResultBytes + (expires ? kFieldBytes : 0);
  const std::size_t length = fixed + std::size_t{load_le<std::uint32_t>(from + 4)};
  const auto last = load_le<std::uint64_t>(from + 16);
  Response result{.opcode = opcode,
                  .code = load_le<std::uint8_t>(from),
                  .flags = static_cast<std::uint8_t>(flags & ~kHasExpiry),
                  .version = {load_le<std::uint64_t>(from + 8)}};
  if (load_le<std::uint16_t>(from + 2) != 0 || length > value_.size() ||
      (result.code != 0 && last > ~std::uint32_t{0})) {
    return wrong_results();
  }
  if (result.code == 0) {
    result.slot = {last};
  } else {
    result.retry_after_ms = static_cast<std::uint32_t>(last);
  }
  if (expires) result.expiry_ms = load_le<std::uint64_t>(from + kPackedResultBytes);
  result.value = value_.subspan(fixed, length - fixed);
  if (expires && result.expiry_ms == 0) return wrong_results();
  const bool is_alone =
      result.flags == Response::kAlone && result.code == static_cast<std::uint8_t>(Code::kBusy);
  if (!is_alone) RKV_RETURN_IF_ERROR(check_response(result));
  value_ = value_.subspan(length);
  return result;
}

}  // namespace rkv
