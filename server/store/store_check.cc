// Checks of the memory of a store at rest.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/store/store_impl.h"
#include "server/store/store_walk.h"

namespace rkv::server {

struct Store::Impl::Rest {
  RecordAllocator::Check blocks;
  // The keys of one pair whose records are in memory.
  std::vector<Bytes> keys = {};
  std::uint64_t records = 0;
  std::uint64_t on_disk = 0;
  std::uint64_t expiring = 0;
  std::uint64_t stashed = 0;
};

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

std::string Store::Impl::check_slot(const Pair& pair, GroupPlace home, Slot slot,
                                    Rest& rest) const {
  if (slot.is_on_disk()) {
    rest.on_disk += 1;
    if (removal_sequences_ == nullptr) return "on disk, and there is none";
    const GroupHeader header = GroupHeader::decode(memory_.group(pair.even)->header);
    return header.covers(hash_of_prefix(slot.prefix())) ? "" : "on disk, of another segment (I6)";
  }
  const Location at = slot.location();
  const StoreMemory::Extent& extent = memory_.extent(at.extent());
  if (extent.kind != ExtentEntry::kData || at.unit() >= extent.units())
    return "it leads out of the data extents";
  const std::uint64_t room = extent.units() - at.unit();
  std::uint64_t units = slot.units();
  if (slot.is_long()) {
    const auto bytes = claimed_record_bytes({memory_.record(at), kUnitBytes});
    if (!bytes) return "it leads to no record";
    units = record_units(*bytes);
  }
  if (units > room) return "its record ends outside the extent";
  const auto record =
      live_record({memory_.record(at, units), units * kUnitBytes}, memory_.epoch(), at);
  if (!record) return "it leads to no live record";
  const std::uint64_t needed =
      record_units(record_bytes(record->key.size(), record->value.size(), record->expiry_ms != 0));
  if (needed != units) return "its length is not the record's";
  if (std::string wrong = rest.blocks.claim(at, units); !wrong.empty()) return wrong;
  return check_record(home, slot, *record, rest);
}

std::string Store::Impl::check_record(GroupPlace home, Slot slot, const RecordFields& record,
                                      Rest& rest) const {
  const KeyHash hash = memory_.hash(record.key);
  if (slot.fingerprint() != hash.fingerprint()) return "its fingerprint is not the key's";
  if (memory_.home(hash) != home) return "its key has another home";
  rest.keys.push_back(record.key);
  rest.records += 1;
  rest.expiring += record.expiry_ms != 0 ? 1 : 0;
  return {};
}

std::string Store::Impl::check_pair(const Pair& pair, Rest& rest) const {
  rest.keys.clear();
  const auto check = [&](GroupPlace home, Slot slot) { return check_slot(pair, home, slot, rest); };
  std::string wrong = index_.check_pair(pair.even, pair.depth, check, rest.stashed);
  if (!wrong.empty()) return wrong;
  const auto text_of = [](Bytes key) { return as_text(key); };
  std::ranges::sort(rest.keys, {}, text_of);
  if (std::ranges::adjacent_find(rest.keys, {}, text_of) != rest.keys.end())
    return fmt::format("group {}: a key has two records (S1)", pair.even.number);
  return {};
}

std::string Store::Impl::check_at_rest() {
  Rest rest{.blocks = RecordAllocator::Check(records_)};
  std::string wrong;
  for_each_pair([&](const Pair& pair) {
    if (wrong.empty()) wrong = check_pair(pair, rest);
  });
  if (!wrong.empty()) return wrong;
  const StripeCounters counters = locks_.total();
  const auto counted = [&wrong](const char* what, std::uint64_t claimed, std::uint64_t found) {
    if (claimed != found && wrong.empty())
      wrong = fmt::format("{}: {} are counted, and there are {}", what, claimed, found);
  };
  counted("records", counters.records, rest.records);
  counted("records on disk", counters.on_disk, rest.on_disk);
  counted("records that expire", counters.expiring, rest.expiring);
  counted("stashed keys", index_.stashed(), rest.stashed);
  return wrong.empty() ? rest.blocks.finish() : wrong;
}

}  // namespace rkv::server
