#include "server/group/replica/entry_block.h"

#include <cstring>

#include "common/bytes.h"
#include "common/pack.h"
#include "rkv/limits.h"

namespace rkv::server {

namespace {

constexpr std::size_t kHasTagOffset = 1;
constexpr std::size_t kKeyLengthOffset = 2;
constexpr std::size_t kValueLengthOffset = 4;
constexpr std::size_t kVersionOffset = 8;
constexpr std::size_t kTraitsOffset = 16;

bool is_kind(std::byte kind) {
  return kind == std::byte{static_cast<std::uint8_t>(CommitLog::Kind::kPut)} ||
         kind == std::byte{static_cast<std::uint8_t>(CommitLog::Kind::kRemove)};
}

// Whether a write of this opcode can make this entry.
bool makes(Opcode opcode, const CommitLog::Entry& entry) {
  const bool removes = entry.kind == CommitLog::Kind::kRemove;
  switch (opcode) {
    case Opcode::kPut:
    case Opcode::kPutLarge:
    case Opcode::kTouch:
      return !removes;
    case Opcode::kRemove:
      return removes;
    case Opcode::kAdd:
    case Opcode::kSwap:
      return !removes && entry.record.counter && entry.record.value.size() == kCounterBytes;
    default:
      return false;
  }
}

// Decodes a tag from a peer. nullopt: no primary sends such a tag for this entry.
std::optional<WriteTag> valid_tag(const std::byte* from, const CommitLog::Entry& entry) {
  const WriteTag tag = decode_write_tag(from);
  const bool is_place =
      tag.count == 0 ? tag.index == 0 : tag.index < tag.count && tag.count <= kMaxPacked;
  if (tag.session == 0 || tag.sequence == 0 || !is_place || !makes(tag.opcode, entry))
    return std::nullopt;
  return tag;
}

}  // namespace

std::size_t entry_bytes(const CommitLog::Entry& entry) {
  return kEntryHeadBytes + (entry.tag ? kWriteTagBytes : 0) + entry.record.key.size() +
         entry.record.value.size();
}

void append_entry(std::vector<std::byte>& block, const CommitLog::Entry& entry) {
  const std::size_t at = block.size();
  block.resize(at + entry_bytes(entry));
  std::byte* const to = block.data() + at;
  const RecordFields& record = entry.record;
  const bool removes = entry.kind == CommitLog::Kind::kRemove;
  to[0] = std::byte{static_cast<std::uint8_t>(entry.kind)};
  to[kHasTagOffset] = std::byte{static_cast<std::uint8_t>(entry.tag ? 1 : 0)};
  store_le(to + kKeyLengthOffset, static_cast<std::uint16_t>(record.key.size()));
  store_le(to + kValueLengthOffset, static_cast<std::uint32_t>(record.value.size()));
  store_le(to + kVersionOffset, record.version.bits);
  store_le(to + kTraitsOffset, removes ? 0 : record_traits(record));
  std::byte* const body = to + entry_bytes(entry) - record.key.size() - record.value.size();
  if (entry.tag) encode(*entry.tag, to + kEntryHeadBytes);
  std::memcpy(body, record.key.data(), record.key.size());
  if (!record.value.empty())
    std::memcpy(body + record.key.size(), record.value.data(), record.value.size());
}

std::optional<CommitLog::Entry> first_entry(Bytes bytes) {
  if (bytes.size() < kEntryHeadBytes || !is_kind(bytes[0]) || bytes[kHasTagOffset] > std::byte{1})
    return std::nullopt;
  const bool has_tag = bytes[kHasTagOffset] != std::byte{0};
  const std::size_t head = kEntryHeadBytes + (has_tag ? kWriteTagBytes : 0);
  const std::size_t key = load_le<std::uint16_t>(bytes.data() + kKeyLengthOffset);
  const std::size_t value = load_le<std::uint32_t>(bytes.data() + kValueLengthOffset);
  const auto traits = load_le<std::uint64_t>(bytes.data() + kTraitsOffset);
  if (key == 0 || key > kMaxKeyBytes || value > kMaxValueBytes || bytes.size() < head + key + value)
    return std::nullopt;
  CommitLog::Entry entry{
      .kind = static_cast<CommitLog::Kind>(bytes[0]),
      .record = {.version = {load_le<std::uint64_t>(bytes.data() + kVersionOffset)},
                 .key = bytes.subspan(head, key),
                 .value = bytes.subspan(head + key, value)}};
  if (entry.kind == CommitLog::Kind::kRemove && (value != 0 || traits != 0)) return std::nullopt;
  set_record_traits(entry.record, traits);
  if (has_tag) {
    entry.tag = valid_tag(bytes.data() + kEntryHeadBytes, entry);
    if (!entry.tag) return std::nullopt;
  }
  return entry;
}

bool is_valid_block(const EntryBlock& block) {
  std::uint64_t version = block.previous.version;
  for (Bytes rest = *block.bytes; !rest.empty();) {
    const auto entry = first_entry(rest);
    if (!entry || entry->record.version.bits <= version) return false;
    version = entry->record.version.bits;
    rest = rest.subspan(entry_bytes(*entry));
  }
  return version == block.last.version && version != block.previous.version;
}

}  // namespace rkv::server
