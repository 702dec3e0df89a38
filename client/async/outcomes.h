// Converts the ends of operations to the results that the public clients return.
//
// Thread safety: functions without shared state.
#pragma once

#include <cstdint>

#include "rkv/async_operation.h"
#include "rkv/result.h"
#include "rkv/values.h"

namespace rkv::client {

// ---- of a get. The view is valid as long as `result`.
Result<ValueView> view_of(const Result<Outcome>& result);
Result<Value> value_of(const AsyncRequest& request, const Result<Outcome>& result);
// Copies the value to AsyncRequest::into. Fails with kTooLarge.
Result<ValueSize> size_of(const AsyncRequest& request, const Result<Outcome>& result);
// Fails with kWrongType if the value is not a counter.
Result<Counter> counter_read(const AsyncRequest& request, const Result<Outcome>& result);

// ---- of a write
Result<std::uint64_t> version_of(const AsyncRequest& request, const Result<Outcome>& result);
Result<Counter> counter_after(const AsyncRequest& request, const Result<Outcome>& result);
Result<CounterSwap> swap_of(const AsyncRequest& request, const Result<Outcome>& result);

}  // namespace rkv::client
