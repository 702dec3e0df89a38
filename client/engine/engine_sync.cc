// GETs that are a single copy: the place of the record is cached, and a READ completes within the
// call.
#include <algorithm>
#include <array>
#include <bit>

#include "client/engine/engine.h"
#include "client/get/fingerprints.h"

namespace rkv::client {

// Returns the only slot with the key's fingerprint in its home group, if the group is cached; else
// an empty slot.
Slot Engine::slot_in_cached_group(KeyHash hash) {
  const auto home = map_.home(hash);
  const Group* const group = home ? cache_.find(*home) : nullptr;
  if (group == nullptr) return {};
  const std::uint32_t found = slots_with(*group, hash.fingerprint());
  if (!std::has_single_bit(found)) return {};
  return Slot{group->slots[static_cast<std::size_t>(std::countr_zero(found))]};
}

// Finds the cached place of a key's record. G7: the address comes from the map.
[[gnu::always_inline]] inline bool Engine::find_at_once(KeyHash hash, AtOnce& found) {
  Slot slot = slots_.find(hash);
  const bool from_group = slot.empty();
  if (from_group) slot = slot_in_cached_group(hash);
  const std::size_t length = slot.units() * kUnitBytes;
  if (slot.is_long() || length == 0 || length > GetMemory::kRecordBytes) return false;
  const Lookup at = map_.record(slot.location(), length);
  if (at.kind != Lookup::Kind::kOk) return false;
  found = {
      .hash = hash, .slot = slot, .from_group = from_group, .from = at.range, .length = length};
  return true;
}

// READs the record. The answer is a live record that verified, has this key, and was read inside
// this GET (G1). In any other case there is no answer here, and the caller starts the state
// machine.
[[gnu::always_inline]] inline const LiveRecord* Engine::read_at_once(Bytes key, const AtOnce& at,
                                                                     Durability at_least,
                                                                     MutableBytes room) {
  const MutableBytes record = room.first(at.length);
  if (!link_.read_at_once(record, at.from)) return nullptr;
  ++stats_.rdma_reads;
  if (!decode_live_record(record, map_.epoch(), at.slot.location(), key, at_once_)) return nullptr;
  if (durability_of(at_once_.version) < at_least) return nullptr;
  if (at.from_group) slots_.put(at.hash, at.slot);
  used_.note(at.hash);
  ++stats_.gets;
  ++stats_.one_sided_gets;
  ++stats_.cache_hits;
  return &at_once_;
}

const LiveRecord* Engine::try_get_sync(Bytes key, Durability at_least) {
  if (!reads_at_once() || key.empty() || key.size() > kMaxKeyBytes) return nullptr;
  AtOnce at;
  if (!find_at_once(map_.hash(key), at)) return nullptr;
  free_large(lanes_.front());  // held for the GET before
  return read_at_once(key, at, at_least, arena_.get_memory(0).record);
}

// Performs each step for all keys before the next step, so that memory of one key is fetched while
// other keys are handled.
std::size_t Engine::try_get_sync(std::span<const std::string_view> keys, std::size_t first,
                                 Durability at_least, GetVisitor visit, void* target,
                                 std::span<std::size_t, kBatchKeys> left) {
  const std::size_t count = std::min(kBatchKeys, keys.size() - first);
  std::array<AtOnce, kBatchKeys> at;
  std::array<bool, kBatchKeys> known{};
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes key = as_bytes(keys[first + i]);
    known[i] = !key.empty() && key.size() <= kMaxKeyBytes;
    if (!known[i]) continue;
    at[i].hash = map_.hash(key);
    slots_.prefetch(at[i].hash);
  }
  for (std::size_t i = 0; i < count; ++i) {
    known[i] = known[i] && find_at_once(at[i].hash, at[i]);
    if (known[i]) link_.prefetch(at[i].from, at[i].length);
  }
  // The memory of the lanes may be in use.
  const MutableBytes room = arena_.get_memory(options_.reads_in_flight).record;
  std::size_t left_count = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const LiveRecord* const found =
        known[i] ? read_at_once(as_bytes(keys[first + i]), at[i], at_least, room) : nullptr;
    if (found != nullptr) {
      visit(target, first + i, view(*found));
    } else {
      left[left_count++] = first + i;
    }
  }
  return left_count;
}

Result<ValueSize> Engine::copy_out(const LiveRecord& found, MutableBytes out) {
  if (found.value_bytes > out.size()) return too_long(found.value_bytes);
  if (found.value_bytes != 0) std::memcpy(out.data(), found.value, found.value_bytes);
  return ValueSize{.bytes = found.value_bytes,
                   .version = found.version.bits,
                   .durability = durability_of(found.version)};
}

ValueView Engine::view(const LiveRecord& found) const {
  return {.value = as_text({found.value, found.value_bytes}),
          .version = found.version.bits,
          .expires_at_ms = found.expiry_ms,
          .is_counter = found.counter,
          .durability = durability_of(found.version)};
}

}  // namespace rkv::client
