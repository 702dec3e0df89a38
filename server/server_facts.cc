// What a running server is asked for: its facts at this moment.
#include "server/server.h"

namespace rkv::server {

LogFacts Server::log_facts() const {
  const Applier::Counts disk = applier_ ? applier_->counts() : Applier::Counts{};
  // In this order: each mark is at or below the next.
  const std::uint64_t sync_mark = log_->sync_mark();
  const std::uint64_t wal_mark = log_->wal_mark();
  return {.persistent = !log_->is_volatile(),
          .queue_bytes = log_->bytes_queued(),
          .queue_capacity_bytes = log_->capacity_bytes(),
          .last_begun = log_->last_begun(),
          .wal_mark = wal_mark,
          .sync_mark = sync_mark,
          .queue_full = log_->refused(),
          .disk = log_->disk_state(),
          .applier = disk,
          .damaged_reads = engine_ ? engine_->damaged_reads() : 0,
          .disk_failed_ms =
              disk.failed_since == 0
                  ? 0
                  : static_cast<std::uint64_t>((clock_.now() - disk.failed_since) / kNanosPerMs)};
}

MemoryFacts Server::memory_facts() const {
  MemoryFacts facts{.limit_bytes = options_.memory_bytes,
                    .segments = memory_->segments().in_use(),
                    .unused_segments = memory_->segments().unused(),
                    .message_bytes = networks_->message_bytes()};
  for (std::uint32_t id = 0; id < memory_->extent_count(); ++id) {
    const StoreMemory::Extent& extent = memory_->extent(id);
    if (extent.kind == ExtentEntry::kData) ++facts.data_extents;
    if (extent.kind != ExtentEntry::kIndex) continue;
    ++facts.index_extents;
    facts.index_bytes += extent.length_bytes;
  }
  return facts;
}

ServerFacts Server::facts() const {
  return {.store = store_->stats(),
          .memory = memory_facts(),
          .log = log_facts(),
          .load = {.loaded = warm_up_ ? warm_up_->records() : 0, .estimated = estimated_records_},
          .workers = networks_->workers(),
          .endpoints = networks_->endpoints(),
          .refusals = networks_->refusals(),
          .max_clients = options_.max_clients,
          .durability = options_.durability,
          .epoch = memory_->epoch(),
          .boot = boot_,
          .uptime_ms = static_cast<std::uint64_t>((clock_.now() - started_) / kNanosPerMs),
          .device = networks_->describe()};
}

}  // namespace rkv::server
