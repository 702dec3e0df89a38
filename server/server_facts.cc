// Server: its facts at this moment, for the monitor and for statistics.
#include <algorithm>

#include "server/server.h"

namespace rkv::server {

LogFacts Server::log_facts() const {
  const Applier::Counts disk =
      disk_ && disk_->applier() != nullptr ? disk_->applier()->counts() : Applier::Counts{};
  // This server's own marks: they tell how far its own disk is behind. Read in this order, so that
  // each mark is at or below the next.
  const std::uint64_t sync_mark = log_->sync_mark();
  const std::uint64_t wal_mark = log_->wal_mark();
  const DiskState state = log_->disk_state();
  const Nanos now = clock_.now();
  const Nanos hung = state == DiskState::kOk ? disk.hung_for(now) : 0;
  const Nanos failed = disk.failed_since == 0 ? hung : now - disk.failed_since;
  return {.persistent = !log_->is_volatile(),
          .queue_bytes = log_->bytes_queued(),
          .queue_capacity_bytes = log_->capacity_bytes(),
          .last_begun = log_->last_begun(),
          .wal_mark = wal_mark,
          .sync_mark = sync_mark,
          .queue_full = log_->refused(),
          .disk = state,
          .applier = disk,
          .damaged_reads = engine_ ? engine_->damaged_reads() : 0,
          .disk_failed_ms = static_cast<std::uint64_t>(std::max<Nanos>(failed, 0) / kNanosPerMs),
          .disk_hangs = hung != 0};
}

MemoryFacts Server::memory_facts() const {
  MemoryFacts facts{.limit_bytes = options_.memory_bytes,
                    .segments = memory_->segments().in_use(),
                    .unused_segments = memory_->segments().unused(),
                    .message_bytes = endpoints_->message_bytes()};
  for (std::uint32_t id = 0; id < memory_->extent_count(); ++id) {
    const StoreMemory::Extent& extent = memory_->extent(id);
    if (extent.kind == ExtentEntry::kData) ++facts.data_extents;
    if (extent.kind != ExtentEntry::kIndex) continue;
    ++facts.index_extents;
    facts.index_bytes += extent.length_bytes;
  }
  return facts;
}

std::string_view Server::who_may_connect() const {
  if (!options_.users.empty()) return "only users of the file of --users may connect";
  if (options_.no_auth) {
    return "every host that reaches the server may read and write, as --no-auth says";
  }
  return "only this host may connect: others need --users, or --no-auth";
}

ServerFacts Server::facts() const {
  return {.store = store_->stats(),
          .memory = memory_facts(),
          .log = log_facts(),
          .load = disk_ ? disk_->load() : LoadFacts{},
          .workers = endpoints_->workers(),
          .endpoints = endpoints_->endpoints(),
          .refusals = endpoints_->refusals(),
          .challenges = endpoints_->challenges(),
          .max_clients = options_.max_clients,
          .durability = options_.durability,
          .epoch = memory_->epoch(),
          .boot = boot_,
          .uptime_ms = static_cast<std::uint64_t>((clock_.now() - started_) / kNanosPerMs),
          .device = endpoints_->describe(),
          .group = replicator_ ? replicator_->status() : nullptr,
          .access = who_may_connect()};
}

}  // namespace rkv::server
