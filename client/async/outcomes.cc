#include "client/async/outcomes.h"

#include <cstring>

#include "client/engine/destinations.h"
#include "client/engine/getter.h"

namespace rkv::client {

Result<ValueView> view_of(const Result<Outcome>& result) {
  if (!result) return std::unexpected(result.error());
  return result->value;
}

Result<Value> value_of(const AsyncRequest& /*request*/, const Result<Outcome>& result) {
  if (!result) return std::unexpected(result.error());
  return copy_of(result->value);
}

Result<ValueSize> size_of(const AsyncRequest& request, const Result<Outcome>& result) {
  if (!result) return std::unexpected(result.error());
  const std::string_view value = result->value.value;
  if (value.size() > request.into.size())
    return fail(Code::kTooLarge, "the value is longer than the buffer given");
  const bool has_landed = as_bytes(value).data() == request.into.data();  // registered memory
  if (!value.empty() && !has_landed) std::memcpy(request.into.data(), value.data(), value.size());
  return ValueSize{
      .bytes = value.size(), .version = result->version, .durability = result->durability};
}

Result<Counter> counter_read(const AsyncRequest& /*request*/, const Result<Outcome>& result) {
  if (!result) return std::unexpected(result.error());
  return counter_of(result->value);
}

Result<std::uint64_t> version_of(const AsyncRequest& /*request*/, const Result<Outcome>& result) {
  if (!result) return std::unexpected(result.error());
  return result->version;
}

Result<Counter> counter_after(const AsyncRequest& /*request*/, const Result<Outcome>& result) {
  if (!result) return std::unexpected(result.error());
  return Counter{
      .number = result->number, .version = result->version, .durability = result->durability};
}

Result<CounterSwap> swap_of(const AsyncRequest& /*request*/, const Result<Outcome>& result) {
  if (!result) return std::unexpected(result.error());
  return CounterSwap{.done = result->swapped, .number = result->number, .version = result->version};
}

}  // namespace rkv::client
