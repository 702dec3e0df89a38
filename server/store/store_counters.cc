// Counters: records whose value is a number, changed under their pair's lock.
#include <array>

#include "server/store/store_impl.h"

namespace rkv::server {

namespace {

std::unexpected<Error> no_counter() {
  return fail(Code::kWrongType, "the key holds a plain value, not a counter");
}

}  // namespace

Result<CounterResult> Store::Impl::add(Bytes key, std::int64_t summand, DiskLookup look,
                                       Nanos begin_by) {
  std::array<std::byte, kCounterBytes> bytes;
  RecordFields fields{.counter = true, .key = key, .value = bytes};
  CounterResult result;
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), kCounterBytes));
  RKV_ASSIGN_OR_RETURN(result.put,
                       commit(
                           room, fields,
                           [&](const Target& at) -> Result<Plan> {
                             if (at.found) {
                               const RecordFields old = record_at(at.found->slot.location());
                               if (!old.counter) return no_counter();
                               fields.expiry_ms = old.expiry_ms;
                               if (old.in_cell) {
                                 RKV_ASSIGN_OR_RETURN(const auto number, add_in_cell(old, summand));
                                 if (number) {
                                   result.number = *number;
                                   result.in_cell = true;
                                   store_le(bytes.data(), *number);
                                   return Plan{.only_logged = true};
                                 }
                               }
                               RKV_ASSIGN_OR_RETURN(result.number, number_of(old));
                             }
                             if (__builtin_add_overflow(result.number, summand, &result.number)) {
                               return fail(Code::kOutOfRange,
                                           "the counter would pass the limits of 64 bits");
                             }
                             store_le(bytes.data(), result.number);
                             return plan(at, fields);
                           },
                           look, begin_by));
  return result;
}

Result<CounterResult> Store::Impl::swap(Bytes key, std::int64_t expected, std::int64_t desired,
                                        DiskLookup look, Nanos begin_by) {
  std::array<std::byte, kCounterBytes> bytes;
  store_le(bytes.data(), desired);
  RecordFields fields{.counter = true, .key = key, .value = bytes};
  CounterResult result{.number = desired};
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), kCounterBytes));
  const auto put = commit(
      room, fields,
      [&](const Target& at) -> Result<Plan> {
        if (!at.found) return fail(Code::kNotFound, "no such key");
        const RecordFields old = record_at(at.found->slot.location());
        if (!old.counter) return no_counter();
        fields.expiry_ms = old.expiry_ms;
        std::optional<std::int64_t> number;
        if (old.in_cell) {
          RKV_ASSIGN_OR_RETURN(number, swap_in_cell(old, expected, desired));
          result.in_cell = number.has_value();
        }
        if (!number) {
          RKV_ASSIGN_OR_RETURN(number, number_of(old));
        }
        if (*number == expected) {
          return result.in_cell ? Plan{.only_logged = true} : plan(at, fields);
        }
        result.put.version = old.version;
        result.number = *number;
        result.done = false;
        return fail(Code::kConflict, "the counter has another number");
      },
      look, begin_by);
  if (put) {
    result.put = *put;
  } else if (result.done) {
    return std::unexpected(put.error());
  }
  return result;
}

}  // namespace rkv::server
