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
  bool in_cell;
  bool large() const { return is_large(value); }
  std::size_t head() const { return record_head_bytes(key, value, has_expiry); }
  std::size_t total() const { return head() + value; }
};

// Returns nullopt for lengths that no valid record can have.
std::optional<Lengths> decode_lengths(std::uint64_t word) {
  const Lengths lengths{.key = word & 0x7FFU,
                        .value = word >> 32,
                        .has_expiry = (word & kRecordExpiryFlag) != 0,
                        .counter = (word & kRecordCounterFlag) != 0,
                        .in_cell = (word & kRecordCellFlag) != 0};
  const std::uint64_t reserved = word & 0xFFFF8000U;
  const std::size_t counter_bytes = lengths.in_cell ? kCellCounterBytes : kCounterBytes;
  if (reserved != 0 || lengths.key == 0 || lengths.key > kMaxKeyBytes ||
      lengths.value > kMaxValueBytes || (lengths.counter && lengths.value != counter_bytes) ||
      (lengths.in_cell && !lengths.counter) ||
      lengths.large() != ((word & kRecordDigestFlag) != 0)) {
    return std::nullopt;
  }
  return lengths;
}

std::optional<Lengths> lengths_in(Bytes bytes) {
  if (bytes.size() < kRecordHeaderBytes) return std::nullopt;
  return decode_lengths(load_le<std::uint64_t>(bytes.data() + 16));
}

// Writes everything before the value except the checksum word.
std::size_t put_head(MutableBytes out, const RecordFields& fields) {
  const bool has_expiry = fields.expiry_ms != 0;
  const bool large = is_large(fields.value.size());
  store_le(out.data() + 8, fields.version.bits);
  store_le(out.data() + 16,
           std::uint64_t{fields.key.size()} | (has_expiry ? kRecordExpiryFlag : 0) |
               (fields.counter ? kRecordCounterFlag : 0) | (fields.in_cell ? kRecordCellFlag : 0) |
               (large ? kRecordDigestFlag : 0) | (std::uint64_t{fields.value.size()} << 32));
  std::byte* next = out.data() + kRecordHeaderBytes;
  if (has_expiry) {
    store_le(next, fields.expiry_ms);
    next += kExpiryBytes;
  }
  if (large) {
    store_le(next, fields.digest);
    next += kDigestBytes;
  }
  if (!fields.key.empty()) std::memcpy(next, fields.key.data(), fields.key.size());
  next += fields.key.size();
  const std::size_t total = record_head_bytes(fields.key.size(), fields.value.size(), has_expiry);
  std::memset(next, 0, static_cast<std::size_t>(out.data() + total - next));
  return total;
}

RecordFields fields_of(Bytes bytes, const Lengths& lengths) {
  RecordFields fields{.version = {load_le<std::uint64_t>(bytes.data() + 8)},
                      .counter = lengths.counter,
                      .in_cell = lengths.in_cell};
  std::size_t at = kRecordHeaderBytes;
  if (lengths.has_expiry) {
    fields.expiry_ms = load_le<std::uint64_t>(bytes.data() + at);
    at += kExpiryBytes;
  }
  if (lengths.large()) {
    fields.digest = load_le<std::uint64_t>(bytes.data() + at);
    at += kDigestBytes;
  }
  fields.key = bytes.subspan(at, lengths.key);
  return fields;
}

std::optional<RecordState> state_of(std::uint64_t word, std::uint64_t checksum) {
  for (const RecordState state :
       {RecordState::kLive, RecordState::kSuperseded, RecordState::kPrepared}) {
    if ((word ^ checksum) == state_mask(state)) return state;
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t value_digest_seed(Bytes key, std::uint64_t epoch) {
  return xxh3(key, epoch);
}

std::uint64_t value_digest(Bytes key, Bytes value, std::uint64_t epoch) {
  return xxh3(value, value_digest_seed(key, epoch));
}

std::size_t encode_record(MutableBytes out, const RecordFields& fields, RecordState state,
                          std::uint64_t epoch, Location location) {
  const bool large = is_large(fields.value.size());
  const std::size_t total =
      record_bytes(fields.key.size(), fields.value.size(), fields.expiry_ms != 0);
  RKV_CHECK(out.size() >= total, "record buffer too small");
  const std::size_t head =
      large ? encode_large_head(out, fields, state, epoch, location) : put_head(out, fields);
  if (!fields.value.empty()) {
    std::memcpy(out.data() + head, fields.value.data(), fields.value.size());
  }
  if (!large) {
    const std::uint64_t checksum = record_checksum(out.subspan(8, total - 8), epoch, location);
    store_le(out.data(), checksum ^ state_mask(state));
  }
  return total;
}

std::size_t encode_large_head(MutableBytes out, const RecordFields& fields, RecordState state,
                              std::uint64_t epoch, Location location) {
  RKV_CHECK(is_large(fields.value.size()) &&
                out.size() >= record_head_bytes(fields.key.size(), fields.value.size(),
                                                fields.expiry_ms != 0),
            "record buffer too small");
  const std::size_t head = put_head(out, fields);
  const std::uint64_t checksum = record_checksum(out.subspan(8, head - 8), epoch, location);
  store_le(out.data(), checksum ^ state_mask(state));
  return head;
}

std::optional<LargeHead> decode_large_head(Bytes bytes, std::uint64_t epoch, Location location) {
  const auto lengths = lengths_in(bytes);
  if (!lengths || !lengths->large() || lengths->head() > bytes.size()) return std::nullopt;
  const std::size_t head = lengths->head();
  const auto state = state_of(load_le<std::uint64_t>(bytes.data()),
                              record_checksum(bytes.subspan(8, head - 8), epoch, location));
  if (!state) return std::nullopt;
  return LargeHead{.fields = fields_of(bytes, *lengths),
                   .state = *state,
                   .value_offset = head,
                   .value_bytes = lengths->value};
}

std::optional<RecordView> decode_record(Bytes bytes, std::uint64_t epoch, Location location) {
  const auto lengths = lengths_in(bytes);
  if (!lengths || lengths->total() > bytes.size()) return std::nullopt;
  const std::size_t covered = lengths->large() ? lengths->head() : lengths->total();
  const auto state = state_of(load_le<std::uint64_t>(bytes.data()),
                              record_checksum(bytes.subspan(8, covered - 8), epoch, location));
  if (!state) return std::nullopt;
  RecordView view{.fields = fields_of(bytes, *lengths), .state = *state};
  view.fields.value = bytes.subspan(lengths->head(), lengths->value);
  if (lengths->large() &&
      value_digest(view.fields.key, view.fields.value, epoch) != view.fields.digest) {
    return std::nullopt;
  }
  return view;
}

bool decode_live_record(Bytes bytes, std::uint64_t epoch, Location location, Bytes key,
                        LiveRecord& record) {
  const std::byte* const from = bytes.data();
  if (bytes.size() < kRecordHeaderBytes + kExpiryBytes) return false;
  const auto lengths = load_le<std::uint64_t>(from + 16);
  const std::uint64_t expiry_flag = lengths & kRecordExpiryFlag;
  const std::uint64_t counter_flag = lengths & kRecordCounterFlag;
  // The lower half must hold the key's length and no other flag.
  if (static_cast<std::uint32_t>(lengths ^ expiry_flag ^ counter_flag) != key.size()) return false;
  const std::size_t key_at = kRecordHeaderBytes + (expiry_flag != 0 ? kExpiryBytes : 0);
  const std::size_t value_at = key_at + key.size();
  const std::size_t value_bytes = lengths >> 32;
  const std::size_t total = value_at + value_bytes;
  if (total > bytes.size() || is_large(value_bytes)) return false;
  if (counter_flag != 0 && value_bytes != kCounterBytes) return false;
  const std::uint64_t checksum = record_checksum({from + 8, total - 8}, epoch, location);
  static_assert(state_mask(RecordState::kLive) == 0);
  if (load_le<std::uint64_t>(from) != checksum) return false;
  if (std::memcmp(from + key_at, key.data(), key.size()) != 0) return false;
  record.version = {load_le<std::uint64_t>(from + 8)};
  record.expiry_ms = 0;
  if (expiry_flag != 0) record.expiry_ms = load_le<std::uint64_t>(from + kRecordHeaderBytes);
  record.counter = counter_flag != 0;
  record.value = from + value_at;
  record.value_bytes = value_bytes;
  return true;
}

std::optional<std::size_t> claimed_record_bytes(Bytes header) {
  const auto lengths = lengths_in(header);
  if (!lengths) return std::nullopt;
  return lengths->total();
}

bool claims_large_value(Bytes header) {
  const auto lengths = lengths_in(header);
  return lengths && lengths->large();
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
