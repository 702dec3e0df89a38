#include "server/store/store_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace rkv::server {

namespace {

// Returns nothing if the block holds no live record.
std::optional<RecordFields> live_record(Bytes block, std::uint64_t epoch, Location location) {
  if (claims_large_value(block)) {
    auto head = decode_large_head(block, epoch, location);
    if (!head || head->state != RecordState::kLive ||
        head->value_offset + head->value_bytes > block.size())
      return std::nullopt;
    head->fields.value = block.subspan(head->value_offset, head->value_bytes);
    const std::uint64_t digest = value_digest(head->fields.key, head->fields.value, epoch);
    return digest == head->fields.digest ? std::optional(head->fields) : std::nullopt;
  }
  const auto record = decode_record(block, epoch, location);
  return record && record->state == RecordState::kLive ? std::optional(record->fields)
                                                       : std::nullopt;
}

}  // namespace

std::string StoreCheck::check_slot(const RecordTable::Pair& pair, GroupPlace home, Slot slot) {
  if (slot.is_on_disk()) {
    on_disk_ += 1;
    if (!has_disk_) return "marked as on disk, but this store has no disk";
    const GroupHeader header = GroupHeader::decode(table_.memory().group(pair.even)->header);
    return header.covers(RecordTable::hash_of_prefix(slot.prefix()))
               ? ""
               : "marked as on disk, but the hash belongs to another segment (INDEX-6)";
  }
  const Location at = slot.location();
  const StoreMemory::Extent& extent = table_.memory().extent(at.extent());
  if (extent.kind != ExtentEntry::kData || at.unit() >= extent.units())
    return "the slot points outside the data extents";
  const std::uint64_t room = extent.units() - at.unit();
  std::uint64_t units = slot.units();
  if (slot.is_long()) {
    const auto bytes = claimed_record_bytes({table_.memory().record(at), kUnitBytes});
    if (!bytes) return "the slot points to bytes that are not a record";
    units = record_units(*bytes);
  }
  if (units > room) return "the record ends outside its extent";
  const auto record = live_record({table_.memory().record(at, units), units * kUnitBytes},
                                  table_.memory().epoch(), at);
  if (!record) return "the slot points to a record that is not live";
  const std::size_t length =
      record_bytes(record->key.size(), record->value.size(), record->expiry_ms != 0);
  if (record_units(length) != units) return "the block's length does not match the record's";
  if (std::string wrong = blocks_.claim(at, units); !wrong.empty()) return wrong;
  const Bytes block{table_.memory().record(at, units), units * kUnitBytes};
  if (table_.memory().is_scrubbed() && !RecordAllocator::Check::is_zero(block.subspan(length)))
    return "the record's block is not zero after the record (SCRUB-1)";
  return check_record(home, slot, *record);
}

std::string StoreCheck::check_record(GroupPlace home, Slot slot, const RecordFields& record) {
  const KeyHash hash = table_.memory().hash(record.key);
  if (slot.fingerprint() != hash.fingerprint())
    return "the slot's fingerprint is not that of the key";
  if (table_.memory().home(hash) != home) return "the key belongs to another group";
  if (record.expiry_ms != 0 && !table_.index().due().finds(home, record.expiry_ms))
    return "the record's expiry would not be noticed (DUE-1, DUE-2)";
  keys_.push_back(record.key);
  records_ += 1;
  expiring_ += record.expiry_ms != 0 ? 1 : 0;
  return {};
}

std::string StoreCheck::check_pair(const RecordTable::Pair& pair) {
  keys_.clear();
  const auto check = [&](GroupPlace home, Slot slot) { return check_slot(pair, home, slot); };
  std::string wrong = table_.index().check_pair(pair.even, pair.depth, check, stashed_);
  if (!wrong.empty()) return wrong;
  const auto text_of = [](Bytes key) { return as_text(key); };
  std::ranges::sort(keys_, {}, text_of);
  if (std::ranges::adjacent_find(keys_, {}, text_of) != keys_.end())
    return fmt::format("group {}: a key has two records (STORE-1)", pair.even.number);
  return {};
}

std::string StoreCheck::check_counters() const {
  const StripeCounters counters = table_.locks().total();
  std::string wrong;
  const auto compare = [&wrong](const char* what, std::uint64_t counted, std::uint64_t found) {
    if (counted != found && wrong.empty())
      wrong = fmt::format("{}: counted {}, found {}", what, counted, found);
  };
  compare("records", counters.records, records_);
  compare("records on disk", counters.on_disk, on_disk_);
  compare("records that expire", counters.expiring, expiring_);
  compare("stashed keys", table_.index().stashed(), stashed_);
  return wrong;
}

std::string StoreCheck::run() {
  std::string wrong;
  table_.for_each_pair([&](const RecordTable::Pair& pair) {
    if (wrong.empty()) wrong = check_pair(pair);
  });
  if (wrong.empty()) wrong = check_counters();
  return wrong.empty() ? blocks_.finish() : wrong;
}

}  // namespace rkv::server
