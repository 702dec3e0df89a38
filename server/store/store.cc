#include "server/store/store.h"

#include "common/check.h"
#include "server/store/store_check.h"

namespace rkv::server {

Store::Store(StoreMemory& memory, CommitLog& log, const Clock& clock, std::uint32_t boot,
             std::uint64_t unix_ms_at_0)
    : expiry_clock_(clock, unix_ms_at_0),
      table_(memory, clock),
      disk_(table_, log, boot),
      counter_cells_(table_, log, boot),
      evictor_(table_, log, disk_, clock, boot),
      growth_(table_, evictor_),
      expirer_(table_, log, expiry_clock_, counter_cells_, disk_, boot),
      records_({.table = table_,
                .log = log,
                .clock = expiry_clock_,
                .disk = disk_,
                .cells = counter_cells_,
                .evictor = evictor_,
                .growth = growth_,
                .expirer = expirer_,
                .boot = boot}),
      large_records_(table_, log, disk_, growth_, records_),
      toucher_(table_, log, disk_, counter_cells_, records_, large_records_),
      counters_(table_, log, counter_cells_, records_),
      loader_(table_, log, expiry_clock_, disk_, growth_, expirer_, records_) {}

StoreResult<PutResult> Store::put(Bytes key, Bytes value, const PutOptions& options) {
  RKV_CHECK(!key.empty() && key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes,
            "key or value outside the limits");
  if (is_large(value.size())) return large_records_.put(key, value, options);
  return records_.put(key, value, options);
}

void Store::move_records_for_long_ones() {
  evictor_.move_for_runs(
      [this](const Target& at, Location to, std::uint64_t units) { records_.move(at, to, units); });
}

StoreStats Store::stats() const {
  // Read before the records are counted: if `loading` is false, the counts cover all records.
  const bool loading = table_.index().all_spilled();
  const StripeCounters counters = table_.locks().total();
  const RecordAllocator::Usage usage = table_.blocks().usage();
  const CounterCells::Totals cells = counter_cells_.totals();
  return {.records = counters.records,
          .records_on_disk = counters.on_disk,
          .evicted = counters.evicted,
          .promoted = loader_.promoted(),
          .loading = loading,
          .stashed_records = table_.index().stashed(),
          .index_slots = table_.memory().slot_count(),
          .index_splits = counters.splits,
          .memory_bytes = table_.memory().allocated_bytes(),
          .data_bytes = usage.capacity_bytes,
          .data_bytes_used = usage.used_bytes,
          .puts_in_place = counters.puts_in_place,
          .puts_moved = counters.puts_moved,
          .longest_free_bytes = table_.blocks().longest_free_bytes(),
          .large_bytes_under_way = large_records_.bytes_under_way(),
          .large_refused = large_records_.refused(),
          .expiring = counters.expiring,
          .expired = counters.expired,
          .counter_cells = cells.cells,
          .counter_cells_taken = cells.taken,
          .one_sided_counters = cells.open};
}

std::string Store::check_at_rest() const {
  return StoreCheck(table_, disk_.in_use()).run();
}

}  // namespace rkv::server
