#include "common/layout.h"

#include <cstring>

#include "common/check.h"

namespace rkv {

std::uint64_t group_checksum(const Group& group, std::uint64_t epoch, GroupPlace place) {
  const Bytes all = std::as_bytes(std::span(&group, 1));
  return xxh3(all.subspan(8), epoch) ^ mix64(place.bits());
}

namespace {

std::uint64_t record_checksum(Bytes after_checksum_word, std::uint64_t epoch, Location location) {
  return xxh3(after_checksum_word, epoch) ^ mix64(location.bits);
}

struct Lengths {
  std::size_t key;
  std::size_t value;
  bool has_expiry;
  bool counter;
  std::size_t total() const { return record_bytes(key, value, has_expiry); }
};

// Nothing for lengths that no record of ours can have.
std::optional<Lengths> decode_lengths(std::uint64_t word) {
  const Lengths lengths{.key = word & 0x7FFU,
                        .value = word >> 32,
                        .has_expiry = (word & kRecordExpiryFlag) != 0,
                        .counter = (word & kRecordCounterFlag) != 0};
  const std::uint64_t reserved = word & 0xFFFFE000U;
  if (reserved != 0 || lengths.key == 0 || lengths.key > kMaxKeyBytes ||
      lengths.value > kMaxValueBytes || (lengths.counter && lengths.value != kCounterBytes)) {
    return std::nullopt;
  }
  return lengths;
}

}  // namespace

std::size_t encode_record(MutableBytes out, const RecordFields& fields, RecordState state,
                          std::uint64_t epoch, Location location) {
  const bool has_expiry = fields.expiry_ms != 0;
  const std::size_t total = record_bytes(fields.key.size(), fields.value.size(), has_expiry);
  RKV_CHECK(out.size() >= total, "record buffer too small");
  store_le(out.data() + 8, fields.version.bits);
  store_le(out.data() + 16, std::uint64_t{fields.key.size()} |
                                (has_expiry ? kRecordExpiryFlag : 0) |
                                (fields.counter ? kRecordCounterFlag : 0) |
                                (std::uint64_t{fields.value.size()} << 32));
  std::byte* next = out.data() + kRecordHeaderBytes;
  if (has_expiry) {
    store_le(next, fields.expiry_ms);
    next += kExpiryBytes;
  }
  if (!fields.key.empty()) std::memcpy(next, fields.key.data(), fields.key.size());
  next += fields.key.size();
  if (!fields.value.empty()) std::memcpy(next, fields.value.data(), fields.value.size());
  const std::uint64_t checksum = record_checksum(out.subspan(8, total - 8), epoch, location);
  store_le(out.data(), checksum ^ state_mask(state));
  return total;
}

std::optional<RecordView> decode_record(Bytes bytes, std::uint64_t epoch, Location location) {
  if (bytes.size() < kRecordHeaderBytes) return std::nullopt;
  const auto lengths = decode_lengths(load_le<std::uint64_t>(bytes.data() + 16));
  if (!lengths || lengths->total() > bytes.size()) return std::nullopt;

  const std::uint64_t checksum =
      record_checksum(bytes.subspan(8, lengths->total() - 8), epoch, location);
  const std::uint64_t mask = load_le<std::uint64_t>(bytes.data()) ^ checksum;
  RecordView view;
  if (mask == 0) {
    view.state = RecordState::kLive;
  } else if (mask == kSupersededMask) {
    view.state = RecordState::kSuperseded;
  } else if (mask == kPreparedMask) {
    view.state = RecordState::kPrepared;
  } else {
    return std::nullopt;
  }
  view.fields.version.bits = load_le<std::uint64_t>(bytes.data() + 8);
  std::size_t at = kRecordHeaderBytes;
  if (lengths->has_expiry) {
    view.fields.expiry_ms = load_le<std::uint64_t>(bytes.data() + at);
    at += kExpiryBytes;
  }
  view.fields.counter = lengths->counter;
  view.fields.key = bytes.subspan(at, lengths->key);
  view.fields.value = bytes.subspan(at + lengths->key, lengths->value);
  return view;
}

std::optional<std::size_t> claimed_record_bytes(Bytes header) {
  if (header.size() < kRecordHeaderBytes) return std::nullopt;
  const auto lengths = decode_lengths(load_le<std::uint64_t>(header.data() + 16));
  if (!lengths) return std::nullopt;
  return lengths->total();
}

namespace {
std::uint64_t directory_check(std::uint64_t upper, std::uint64_t epoch) {
  return mix64(upper ^ epoch) & 0x7FFU;
}
}  // namespace

std::uint64_t DirectoryEntry::encode(std::uint64_t epoch) const {
  const std::uint64_t upper = (std::uint64_t{extent & 0xFFFFU} << 48) |
                              (std::uint64_t{segment} << 16) | (std::uint64_t{depth & 0x1FU} << 11);
  return upper | directory_check(upper, epoch);
}

std::optional<DirectoryEntry> DirectoryEntry::decode(std::uint64_t word, std::uint64_t epoch) {
  const std::uint64_t upper = word & ~std::uint64_t{0x7FF};
  if ((word & 0x7FFU) != directory_check(upper, epoch)) return std::nullopt;
  return DirectoryEntry{.extent = static_cast<std::uint32_t>(word >> 48),
                        .segment = static_cast<std::uint32_t>(word >> 16),
                        .depth = static_cast<std::uint32_t>(word >> 11) & 0x1FU};
}

std::uint64_t line_checksum(Bytes line_without_checksum, std::uint64_t epoch, std::size_t offset) {
  return xxh3(line_without_checksum, epoch) ^ mix64(offset);
}

}  // namespace rkv
