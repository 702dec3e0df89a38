// Counters: records whose value is a number, changed under their pair's lock.
#include <array>

#include "server/store_impl.h"

namespace rkv::server {

namespace {

std::int64_t number_of(const RecordFields& record) {
  return load_le<std::int64_t>(record.value.data());
}

std::unexpected<Error> no_counter() {
  return fail(Code::kWrongType, "the key holds a plain value, not a counter");
}

}  // namespace

Result<CounterResult> Store::Impl::add(Bytes key, std::int64_t summand) {
  std::array<std::byte, kCounterBytes> bytes;
  RecordFields fields{.counter = true, .key = key, .value = bytes};
  std::int64_t sum = 0;
  RKV_ASSIGN_OR_RETURN(
      const PutResult put, write(fields, kCounterBytes, [&](const Target& at) -> Status {
        if (at.found) {
          const RecordFields old = record_at(at.found->slot.location());
          if (!old.counter) return no_counter();
          sum = number_of(old);
          fields.expiry_ms = old.expiry_ms;
        }
        if (__builtin_add_overflow(sum, summand, &sum)) {
          return fail(Code::kOutOfRange, "the counter would pass the limits of 64 bits");
        }
        store_le(bytes.data(), sum);
        return {};
      }));
  return CounterResult{.put = put, .number = sum};
}

Result<CounterResult> Store::Impl::swap(Bytes key, std::int64_t expected, std::int64_t desired) {
  std::array<std::byte, kCounterBytes> bytes;
  store_le(bytes.data(), desired);
  RecordFields fields{.counter = true, .key = key, .value = bytes};
  CounterResult result{.number = desired};
  const auto put = write(fields, kCounterBytes, [&](const Target& at) -> Status {
    if (!at.found) return fail(Code::kNotFound, "no such key");
    const RecordFields old = record_at(at.found->slot.location());
    if (!old.counter) return no_counter();
    fields.expiry_ms = old.expiry_ms;
    if (number_of(old) == expected) return {};
    result.put.version = old.version;
    result.number = number_of(old);
    result.done = false;
    return fail(Code::kConflict, "the counter has another number");
  });
  if (put) {
    result.put = *put;
  } else if (result.done) {
    return std::unexpected(put.error());
  }
  return result;
}

}  // namespace rkv::server
