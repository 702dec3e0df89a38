#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace rkv {

void check_failed(const char* condition, const char* file, int line, const char* message) noexcept {
  std::fprintf(stderr, "rkv: bug at %s:%d: %s (%s)\n", file, line, message, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace rkv
