#include "server/store/record_table.h"

namespace rkv::server {

void RecordTable::erase(const Target& target) {
  const Location block = target.found->slot.location();
  target.counters->records -= 1;
  target.counters->expiring -= record_at(block).expiry_ms != 0 ? 1 : 0;
  supersede(block);
  index_.erase(target.home, *target.found);
}

// A long record keeps its header until the block is given to another record.
void RecordTable::release(Slot gone) {
  std::uint64_t units = gone.units();
  if (gone.is_long()) [[unlikely]] {
    const RecordFields record = record_at(gone.location());
    units =
        record_units(record_bytes(record.key.size(), record.value.size(), record.expiry_ms != 0));
  }
  blocks_.release(gone.location(), units);
}

}  // namespace rkv::server
