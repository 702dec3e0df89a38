#include "server/store/record_table.h"

namespace rkv::server {

void RecordTable::erase(const Target& target) {
  const Location block = target.found->slot.location();
  target.counters->records -= 1;
  target.counters->expiring -= record_at(block).expiry_ms != 0 ? 1 : 0;
  supersede(block);
  index_.erase(target.home, *target.found);
}

// A long record keeps its header until its block is released.
std::uint64_t RecordTable::units_of(Slot slot) const {
  if (!slot.is_long()) [[likely]]
    return slot.units();
  const RecordFields record = record_at(slot.location());
  return record_units(record_bytes(record.key.size(), record.value.size(), record.expiry_ms != 0));
}

void RecordTable::release(Slot gone) {
  blocks_.release(gone.location(), units_of(gone));
}

}  // namespace rkv::server
