// RKV_CHECK: a programming error ends the process with a message, in release builds too.
// Not for bytes from a peer or from disk: those are validated and answered with an Error.
#pragma once

#include "rkv/export.h"

namespace rkv {
[[noreturn]] RKV_EXPORT void check_failed(const char* condition, const char* file, int line,
                                          const char* message) noexcept;
}  // namespace rkv

#define RKV_CHECK(condition, message)                               \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::rkv::check_failed(#condition, __FILE__, __LINE__, message); \
  } while (false)
