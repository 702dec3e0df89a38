#include "server/store/counters.h"

#include <array>

namespace rkv::server {

Result<RecordFields> Counters::counter_at(const Target& at) const {
  RecordFields record = table_.record_at(at.found->slot.location());
  if (!record.counter) {
    return fail(Code::kWrongType, "the key holds a plain value, not a counter");
  }
  return record;
}

StoreResult<CounterResult> Counters::add(Bytes key, std::int64_t summand, const DiskLookup& look,
                                         Nanos begin_by, const WriteTag* tag) {
  std::array<std::byte, kCounterBytes> bytes;
  RecordFields fields{.counter = true, .key = key, .value = bytes};
  CounterResult result;
  const auto prepare = [&](const Target& at) -> Result<RecordStore::Plan> {
    if (at.found) {
      RKV_ASSIGN_OR_RETURN(const RecordFields old, counter_at(at));
      fields.expiry_ms = old.expiry_ms;
      if (old.in_cell) {
        RKV_ASSIGN_OR_RETURN(const auto number, cells_.add(old, summand));
        if (number) {
          result.number = *number;
          result.in_cell = true;
          store_le(bytes.data(), *number);
          return RecordStore::Plan{.only_logged = true};
        }
      }
      RKV_ASSIGN_OR_RETURN(result.number, cells_.number_of(old));
    }
    if (__builtin_add_overflow(result.number, summand, &result.number)) {
      return fail(Code::kOutOfRange, kExceedsRange);
    }
    store_le(bytes.data(), result.number);
    return records_.plan(at, fields);
  };
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), kCounterBytes));
  RKV_ASSIGN_OR_RETURN(result.put, records_.commit(room, fields, prepare, look, begin_by, tag));
  return result;
}

StoreResult<CounterResult> Counters::swap(Bytes key, std::int64_t expected, std::int64_t desired,
                                          const DiskLookup& look, Nanos begin_by,
                                          const WriteTag* tag) {
  std::array<std::byte, kCounterBytes> bytes;
  store_le(bytes.data(), desired);
  RecordFields fields{.counter = true, .key = key, .value = bytes};
  CounterResult result{.number = desired};
  const auto prepare = [&](const Target& at) -> Result<RecordStore::Plan> {
    if (!at.found) return fail(Code::kNotFound, "no such key");
    RKV_ASSIGN_OR_RETURN(const RecordFields old, counter_at(at));
    fields.expiry_ms = old.expiry_ms;
    std::optional<std::int64_t> number;
    if (old.in_cell) {
      RKV_ASSIGN_OR_RETURN(number, cells_.swap(old, expected, desired));
      result.in_cell = number.has_value();
    }
    if (!number) {
      RKV_ASSIGN_OR_RETURN(number, cells_.number_of(old));
    }
    if (*number == expected) {
      if (result.in_cell) return RecordStore::Plan{.only_logged = true};
      return records_.plan(at, fields);
    }
    result.put.version = old.version;
    result.number = *number;
    result.done = false;
    return fail(Code::kConflict, "the counter's value is not the expected one");
  };
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), kCounterBytes));
  const auto put = records_.commit(room, fields, prepare, look, begin_by, tag);
  if (put) {
    result.put = *put;
  } else if (result.done) {
    return std::unexpected(put.error());
  }
  return result;
}

// Gets space for the record before the cell: a cell that was taken never comes back, and a client
// repeats the request until there is space. `bytes` is the buffer of the record's value.
Result<Counters::CellPlan> Counters::plan_in_cell(const Target& at, RecordFields& fields,
                                                  MutableBytes bytes, std::uint32_t network,
                                                  std::int64_t number) {
  CellPlan made;
  if (!cells_.has_room(network, number)) return made;
  fields.in_cell = true;
  fields.value = bytes.first(kCellCounterBytes);
  RKV_ASSIGN_OR_RETURN(made.plan, records_.plan(at, fields));
  const auto cell = cells_.take(network, number);
  if (!cell || !*cell) {
    records_.drop(made.plan);
    if (!cell) return std::unexpected(cell.error());
    return CellPlan{};
  }
  made.cell = *cell;
  CounterCells::name_cell(bytes, network, *made.cell);
  return made;
}

StoreResult<Counters::Opened> Counters::open(Bytes key, bool create, std::uint32_t network,
                                             const DiskLookup& look, Nanos begin_by) {
  std::array<std::byte, kCellCounterBytes> bytes;
  RecordFields fields{.counter = true, .key = key};
  Opened opened;
  bool unchanged = false;  // `opened` is the answer, without a write
  const auto prepare = [&](const Target& at) -> Result<RecordStore::Plan> {
    std::int64_t number = 0;
    if (at.found) {
      RKV_ASSIGN_OR_RETURN(const RecordFields old, counter_at(at));
      fields.expiry_ms = old.expiry_ms;
      opened.version = old.version;
      if (old.in_cell) {
        RKV_ASSIGN_OR_RETURN(unchanged, cells_.is_open(old));
        if (unchanged) {
          opened.cell = cells_.cell_on(network, old);
          return fail(Code::kConflict, nullptr);
        }
      }
      RKV_ASSIGN_OR_RETURN(number, cells_.number_of(old));
    } else if (!create) {
      return fail(Code::kNotFound, "no such key");
    }
    store_le(bytes.data(), number);
    RKV_ASSIGN_OR_RETURN(const CellPlan with_cell,
                         plan_in_cell(at, fields, bytes, network, number));
    if (with_cell.cell) {
      opened.cell = with_cell.cell;
      return with_cell.plan;
    }
    if (at.found) {
      unchanged = true;
      return fail(Code::kConflict, nullptr);
    }
    fields.in_cell = false;
    fields.value = Bytes(bytes).first(kCounterBytes);
    return records_.plan(at, fields);
  };
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), kCounterBytes));
  const auto put = records_.commit(room, fields, prepare, look, begin_by, nullptr);
  if (unchanged) return opened;
  if (!put) return std::unexpected(put.error());
  opened.version = put->version;
  if (opened.cell) {
    cells_.own(
        network, *opened.cell,
        {.hash = table_.memory().hash(key), .version = put->version, .key_length = key.size()});
  }
  return opened;
}

}  // namespace rkv::server
