#include "server/store/large_records.h"

#include <cstring>
#include <new>
#include <utility>

#include "common/check.h"

namespace rkv::server {

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
                 .look = options.look && options.look->record ? DiskLookup() : options.look};
  RKV_ASSIGN_OR_RETURN(large.room, log_.try_reserve(key.size(), value_length));
  const std::uint64_t units = record_units(large.head_bytes + value_length);
  const Result<Location> block = growth_.allocate(units);
  if (block && !log_.is_volatile()) large.copy.reset(new (std::nothrow) std::byte[value_length]);
  if (!block || (large.copy == nullptr && !log_.is_volatile())) {
    log_.unreserve(large.room);
    if (!block) return std::unexpected(block.error());
    table_.blocks().release(*block, units);
    return fail(Code::kOutOfMemory, "the server has no memory for a copy of the value");
  }
  large.block = *block;
  large.value = {table_.memory().record(*block, units) + large.head_bytes, value_length};
  large.local_key = table_.memory().extent(block->extent()).local_key();
  return large;
}

Result<PutResult> LargeRecords::finish(LargePut large, Bytes key, std::uint64_t digest,
                                       const PutOptions& options) {
  RecordFields fields = records_.fields_for(key, options);
  fields.value = large.value;
  fields.digest = digest;
  const auto prepare = [&](const Target& at) -> Result<RecordStore::Plan> {
    RKV_RETURN_IF_ERROR(records_.check_put(at, options));
    RecordStore::Plan plan{.block = large.block, .units = large.units(), .value_is_there = true};
    RKV_RETURN_IF_ERROR(records_.find_vacancy(at, plan));
    return plan;
  };
  const auto done = records_.commit(large.room, fields, prepare, large.look, options.begin_by,
                                    options.tag, std::move(large.copy));
  if (done) return *done;
  table_.blocks().release(large.block, large.units());
  // The record was evicted after begin(), in the milliseconds in which the value arrived.
  if (done.error().on_disk)
    return fail(Code::kBusy, "the key's record was evicted meanwhile: retry");
  return std::unexpected(done.error());
}

void LargeRecords::cancel(LargePut large) {
  log_.unreserve(large.room);
  table_.blocks().release(large.block, large.units());
}

StoreResult<PutResult> LargeRecords::put(Bytes key, Bytes value, const PutOptions& options) {
  RKV_ASSIGN_OR_RETURN(LargePut large, begin(key, value.size(), options));
  copy_to_shared(large.value.data(), value);
  if (large.copy != nullptr) std::memcpy(large.copy.get(), value.data(), value.size());
  return finish(std::move(large), key, value_digest(key, value, table_.memory().epoch()), options);
}

}  // namespace rkv::server
