#include "server/store/toucher.h"

#include <cstring>
#include <utility>

namespace rkv::server {

namespace {
// Then the client sends it again, and the worker's other clients are served meanwhile.
constexpr int kTurns = 4;
constexpr Error kAbsent{.code = Code::kNotFound, .text = "no such key"};
// The value has changed since it was looked at. Never leaves this file.
constexpr Error kAnother{.code = Code::kValueChanged, .text = nullptr};

bool is_another(const StoreResult<PutResult>& result) {
  return !result && result.error().code == kAnother.code;
}
}  // namespace

StoreResult<PutResult> Toucher::touch(Bytes key, const PutOptions& options, MutableBytes buffer,
                                      bool copies_large) {
  for (int turn = 0; turn < kTurns; ++turn) {  // each is due to another write of the key
    RKV_ASSIGN_OR_RETURN(const std::size_t length, length_of(key, options));
    StoreResult<PutResult> touched = std::unexpected(StoreError(kAnother));
    if (!is_large(length)) {
      touched = touch_small(key, length, options, buffer);
    } else {
      if (log_.is_volatile()) touched = touch_head(key, options);
      if (is_another(touched) && !copies_large)
        return fail(Code::kTooLarge, "the value would be copied");
      if (is_another(touched)) touched = put_again(key, length, options);
    }
    if (!is_another(touched)) return touched;
  }
  return fail(Code::kBusy, "others write the key all the time: retry");
}

StoreResult<std::size_t> Toucher::length_of(Bytes key, const PutOptions& options) const {
  const KeyHash hash = table_.memory().hash(key);
  const RecordTable::Locked locked(table_, hash);
  RKV_RETURN_IF_ERROR(records_.check_time(options.begin_by));
  const Target at = table_.target(hash, locked, key);
  RKV_RETURN_IF_ERROR(disk_.check_in_memory(at, options.look));
  if (!at.found) return std::unexpected(StoreError(kAbsent));
  const RecordFields record = table_.record_at(at.found->slot.location());
  return record.in_cell ? kCounterBytes : record.value.size();
}

StoreResult<PutResult> Toucher::touch_small(Bytes key, std::size_t length,
                                            const PutOptions& options, MutableBytes buffer) {
  RecordFields fields = records_.fields_for(key, options);
  fields.value = buffer.first(length);
  const auto prepare = [&](const Target& at) -> Result<RecordStore::Plan> {
    if (!at.found) return std::unexpected(kAbsent);
    RKV_RETURN_IF_ERROR(records_.check_condition(at, options.condition, options.expected));
    const RecordFields record = table_.record_at(at.found->slot.location());
    fields.counter = record.counter;
    if ((record.in_cell ? kCounterBytes : record.value.size()) != length)
      return std::unexpected(kAnother);
    if (record.in_cell) {
      RKV_ASSIGN_OR_RETURN(const RecordStore::Plan plan, records_.plan(at, fields));
      const auto number = cells_.end(record);
      if (!number) {
        records_.drop(plan);
        return std::unexpected(number.error());
      }
      store_le(buffer.data(), *number);
      return plan;
    }
    // Not from where it is: the log takes it after the record has been written over.
    if (length != 0) std::memcpy(buffer.data(), record.value.data(), length);
    return records_.plan(at, fields);
  };
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), length));
  return records_.commit(room, fields, prepare, options.look, options.begin_by, options.tag);
}

StoreResult<PutResult> Toucher::touch_head(Bytes key, const PutOptions& options) {
  RecordFields fields = records_.fields_for(key, options);
  const auto prepare = [&](const Target& at) -> Result<RecordStore::Plan> {
    if (!at.found) return std::unexpected(kAbsent);
    RKV_RETURN_IF_ERROR(records_.check_condition(at, options.condition, options.expected));
    const auto plan = records_.plan_head(at, fields);
    if (!plan) return std::unexpected(kAnother);
    return *plan;
  };
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), 0));
  return records_.commit(room, fields, prepare, options.look, options.begin_by, options.tag);
}

StoreResult<PutResult> Toucher::put_again(Bytes key, std::size_t length, PutOptions options) {
  const bool any_version = options.condition == Condition::kNone;
  RKV_ASSIGN_OR_RETURN(LargePut large, large_records_.begin(key, length, options));
  const auto digest = copy_value(key, options, large);
  if (!digest) {
    large_records_.cancel(std::move(large));
    return std::unexpected(digest.error());
  }
  if (large.copy != nullptr) std::memcpy(large.copy.get(), large.value.data(), length);
  auto put = large_records_.finish(std::move(large), key, *digest, options);
  const bool has_changed =
      !put && (put.error().code == Code::kConflict || put.error().code == Code::kWrongType);
  if (any_version && has_changed) return std::unexpected(StoreError(kAnother));
  return put;
}

// Copies the present value, sets the condition to its version, and returns its digest, which covers
// neither version nor place.
StoreResult<std::uint64_t> Toucher::copy_value(Bytes key, PutOptions& options,
                                               const LargePut& large) const {
  const KeyHash hash = table_.memory().hash(key);
  const RecordTable::Locked locked(table_, hash);
  const Target at = table_.target(hash, locked, key);
  RKV_RETURN_IF_ERROR(disk_.check_in_memory(at, options.look));
  if (!at.found) return std::unexpected(StoreError(kAbsent));
  RKV_RETURN_IF_ERROR(records_.check_condition(at, options.condition, options.expected));
  const RecordFields record = table_.record_at(at.found->slot.location());
  if (record.value.size() != large.value.size()) return std::unexpected(StoreError(kAnother));
  copy_to_shared(large.value.data(), record.value);
  options.condition = Condition::kIfVersion;
  options.expected = record.version;
  return record.digest;
}

}  // namespace rkv::server
