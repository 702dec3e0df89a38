// GETs that are one copy: the slot is cached, and a READ is over when the call returns.
#include "client/engine.h"

namespace rkv::client {

// G1: a live record that verified, of this key, read inside this GET. G7: the address comes from
// the map. Whatever is not so ends here without an answer, and the state machine begins anew.
const LiveRecord* Engine::get_at_once(Bytes key, const GetOptions& options) {
  if (!link_.alive() || !link_.reads_at_once() || !map_.ready()) return nullptr;
  if (key.empty() || key.size() > kMaxKeyBytes) return nullptr;
  const KeyHash hash = map_.hash(key);
  const Slot slot = slots_.find(hash);
  const std::size_t length = slot.units() * kUnitBytes;
  if (slot.is_long() || length == 0 || length > GetMemory::kRecordBytes) return nullptr;
  const Lookup at = map_.record(slot.location(), length);
  if (at.kind != Lookup::Kind::kOk) return nullptr;

  free_large(lanes_.front());  // of the GET before
  const MutableBytes record = MutableBytes(arena_.get_memory(0).record).first(length);
  if (!link_.read_at_once(record, at.range)) return nullptr;
  ++stats_.rdma_reads;
  if (!decode_live_record(record, map_.epoch(), slot.location(), key, at_once_)) return nullptr;
  if (durability_of(at_once_.version) < options.at_least) return nullptr;
  used_.note(hash);
  ++stats_.gets;
  ++stats_.one_sided_gets;
  ++stats_.cache_hits;
  return &at_once_;
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
