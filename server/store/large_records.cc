#include "server/store/large_records.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "common/check.h"

namespace rkv::server {

std::uint64_t LargeRecords::limit_bytes() const {
  const std::uint64_t memory = table_.memory().max_data_bytes() / 4;
  return log_.is_volatile() ? memory : std::min(memory, log_.capacity_bytes());
}

// LARGE-3
bool LargeRecords::take_share(std::uint64_t bytes) {
  const std::uint64_t limit = limit_bytes();
  std::uint64_t before = under_way_.load(std::memory_order_relaxed);
  do {
    if (before != 0 && before + bytes > limit) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!under_way_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  return true;
}

void LargeRecords::give_up(const LargePut& large) {
  under_way_.fetch_sub(large.units() * kUnitBytes, std::memory_order_relaxed);
  table_.blocks().release(large.block, large.units());
}

StoreResult<LargePut> LargeRecords::begin(Bytes key, std::size_t value_length,
                                          const PutOptions& options) {
  RKV_CHECK(!key.empty() && key.size() <= kMaxKeyBytes && is_large(value_length) &&
                value_length <= kMaxValueBytes,
            "key or value outside the limits");
  {
    const KeyHash hash = table_.memory().hash(key);
    const RecordTable::Locked locked(table_, hash);
    RKV_RETURN_IF_ERROR(records_.check_time(options.begin_by));
    RKV_RETURN_IF_ERROR(disk_.check_in_memory(table_.target(hash, locked, key), options.look));
  }
  const bool has_expiry = options.ttl_ms != 0;
  LargePut large{.head_bytes = record_head_bytes(key.size(), value_length, has_expiry),
                 .key_bytes = key.size(),
                 .look = options.look && options.look->record ? DiskLookup() : options.look};
  // Nothing is READ for a write that the log would refuse. The space is taken when the value is
  // there (LARGE-2).
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), value_length));
  log_.unreserve(room);
  const std::uint64_t units = record_units(large.head_bytes + value_length);
  if (!take_share(units * kUnitBytes)) {
    return fail(Code::kBusy, "other large values on their way in have all memory for them: retry");
  }
  const Result<Location> block = growth_.allocate(units);
  if (block && !log_.is_volatile()) large.copy.reset(new (std::nothrow) std::byte[value_length]);
  if (!block || (large.copy == nullptr && !log_.is_volatile())) {
    under_way_.fetch_sub(units * kUnitBytes, std::memory_order_relaxed);
    if (!block) return std::unexpected(block.error());
    table_.blocks().release(*block, units);
    return fail(Code::kOutOfMemory, "the server has no memory for a copy of the value");
  }
  large.block = *block;
  large.value = {table_.memory().record(*block, units) + large.head_bytes, value_length};
  large.local_key = table_.memory().extent(block->extent()).local_key();
  return large;
}

// Does not call the log again and again while it is full: each call makes the applier sync.
Status LargeRecords::reserve(LargePut& large) {
  if (large.room) return {};
  if (large.was_refused_room && !log_.failed() &&
      log_.bytes_queued() + large.value.size() > log_.capacity_bytes()) {
    return fail(Code::kBusy, "the queue to the disk is still full: retry");
  }
  const auto room = log_.try_reserve(large.key_bytes, large.value.size());
  large.was_refused_room = !room;
  if (!room) return std::unexpected(room.error());
  large.room = *room;
  return {};
}

Result<PutResult> LargeRecords::finish(LargePut large, Bytes key, std::uint64_t digest,
                                       const PutOptions& options) {
  large.was_refused_room = false;
  if (const Status reserved = reserve(large); !reserved) {
    cancel(std::move(large));
    return std::unexpected(reserved.error());
  }
  RecordFields fields = records_.fields_for(key, options);
  fields.value = large.value;
  fields.digest = digest;
  const auto prepare = [&](const Target& at) -> Result<RecordStore::Plan> {
    RKV_RETURN_IF_ERROR(records_.check_put(at, options));
    RecordStore::Plan plan{.block = large.block, .units = large.units(), .value_is_there = true};
    RKV_RETURN_IF_ERROR(records_.find_vacancy(at, plan));
    return plan;
  };
  const auto done = records_.commit(*large.room, fields, prepare, large.look, options.begin_by,
                                    options.tag, std::move(large.copy));
  if (done) {
    under_way_.fetch_sub(large.units() * kUnitBytes, std::memory_order_relaxed);
    return *done;
  }
  give_up(large);
  // The record was evicted after begin(), in the milliseconds in which the value arrived.
  if (done.error().on_disk)
    return fail(Code::kBusy, "the key's record was evicted meanwhile: retry");
  return std::unexpected(done.error());
}

void LargeRecords::cancel(LargePut large) {
  if (large.room) log_.unreserve(*large.room);
  give_up(large);
}

StoreResult<PutResult> LargeRecords::put(Bytes key, Bytes value, const PutOptions& options) {
  RKV_ASSIGN_OR_RETURN(LargePut large, begin(key, value.size(), options));
  copy_to_shared(large.value.data(), value);
  if (large.copy != nullptr) std::memcpy(large.copy.get(), value.data(), value.size());
  return finish(std::move(large), key, value_digest(key, value, table_.memory().epoch()), options);
}

}  // namespace rkv::server
