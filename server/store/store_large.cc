// Large values, stored in two steps so that no lock is held while the bytes arrive.
#include <new>

#include "common/check.h"
#include "server/store/store_impl.h"

namespace rkv::server {

Result<LargePut> Store::Impl::begin_large(Bytes key, std::size_t value_length,
                                          const PutOptions& options) {
  RKV_CHECK(!key.empty() && key.size() <= kMaxKeyBytes && is_large(value_length) &&
                value_length <= kMaxValueBytes,
            "key or value outside the limits");
  {
    const KeyHash hash = memory_.hash(key);
    const Locked locked(*this, hash);
    RKV_RETURN_IF_ERROR(check_time(options.begin_by));
    RKV_RETURN_IF_ERROR(check_in_memory(target(hash, locked, key), options.look));
  }
  const bool has_expiry = options.ttl_ms != 0;
  LargePut large{.head_bytes = record_head_bytes(key.size(), value_length, has_expiry),
                 .look = options.look && options.look->record ? DiskLookup() : options.look};
  RKV_ASSIGN_OR_RETURN(large.room, log_.try_reserve(key.size(), value_length));
  const std::uint64_t units = record_units(large.head_bytes + value_length);
  const Result<Location> block = allocate(units);
  if (block && !log_.is_volatile()) large.copy.reset(new (std::nothrow) std::byte[value_length]);
  if (!block || (large.copy == nullptr && !log_.is_volatile())) {
    log_.unreserve(large.room);
    if (!block) return std::unexpected(block.error());
    records_.release(*block, units);
    return fail(Code::kOutOfMemory, "the server has no memory for a copy of the value");
  }
  large.block = *block;
  large.value = {memory_.record(*block, units) + large.head_bytes, value_length};
  large.local_key = memory_.extent(block->extent()).local_key();
  return large;
}

Result<PutResult> Store::Impl::finish_large(LargePut large, Bytes key, std::uint64_t digest,
                                            const PutOptions& options) {
  RecordFields fields = fields_for(key, options);
  fields.value = large.value;
  fields.digest = digest;
  const auto prepare = [&](const Target& at) -> Result<Plan> {
    RKV_RETURN_IF_ERROR(check_put(at, options));
    Plan plan{.block = large.block, .units = large.units(), .value_is_there = true};
    RKV_RETURN_IF_ERROR(find_vacancy(at, plan));
    return plan;
  };
  auto done =
      commit(large.room, fields, prepare, large.look, options.begin_by, std::move(large.copy));
  if (!done) records_.release(large.block, large.units());
  if (!done && done.error().code == kOnDisk) {
    // The record was evicted after begin_large(), in the milliseconds in which the value arrived.
    return fail(Code::kBusy, "the key's record has left memory: try again");
  }
  return done;
}

void Store::Impl::cancel_large(LargePut large) {
  log_.unreserve(large.room);
  records_.release(large.block, large.units());
}

// A large value that is complete in memory already.
Result<PutResult> Store::Impl::put_large(Bytes key, Bytes value, const PutOptions& options) {
  RKV_ASSIGN_OR_RETURN(LargePut large, begin_large(key, value.size(), options));
  copy_to_shared(large.value.data(), value);
  if (large.copy != nullptr) std::memcpy(large.copy.get(), value.data(), value.size());
  return finish_large(std::move(large), key, value_digest(key, value, memory_.epoch()), options);
}

}  // namespace rkv::server
