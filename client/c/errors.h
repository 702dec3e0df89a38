// Errors of the C++ library, and exceptions, as C gets them.
//
// Thread safety: functions without shared state.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "rkv/c.h"
#include "rkv/result.h"

namespace rkv::c {

// Fills `error`, which may be null, and returns its code.
rkv_status report(const Error& given, rkv_error* error);
// `refusal`: what the server said, or empty.
rkv_status report_refused(const Error& given, std::string_view refusal, rkv_error* error);
// Adds the server's message to the error of a failed operation, if the error is the server's own:
// its text is then the words of its code.
void add_refusal(std::string_view refusal, rkv_error* error);
rkv_status report(rkv_status code, std::string_view text, rkv_error* error);
inline rkv_status wrong(std::string_view text, rkv_error* error) {
  return report(RKV_INVALID_ARGUMENT, text, error);
}

inline rkv_status no_client(rkv_error* error) {
  return wrong("the client must not be NULL", error);
}
inline rkv_status no_counter(rkv_error* error) {
  return wrong("the counter must not be NULL", error);
}
inline rkv_status closed(rkv_error* error) {
  return wrong("the client is closed", error);
}
inline rkv_status no_bytes(rkv_error* error) {
  return wrong("a key or value of a length above 0 must not be NULL", error);
}

// Calls `body`, which returns a status; turns an exception into one.
template <class Body>
rkv_status guarded(rkv_error* error, Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return report(RKV_OUT_OF_MEMORY, "the process is out of memory", error);
  } catch (const std::exception& thrown) {
    return report(RKV_INTERNAL, thrown.what(), error);
  }
}

}  // namespace rkv::c
