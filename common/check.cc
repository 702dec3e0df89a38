#include "common/check.h"

#include <array>
#include <cstdio>
#include <cstdlib>

#include "common/standard_streams.h"

namespace rkv {

void check_failed(const char* condition, const char* file, int line, const char* message) noexcept {
  std::array<char, 1024> text{};  // nothing is allocated: the heap may be the reason
  std::snprintf(text.data(), text.size(), "rkv: bug at %s:%d: %s (%s)\n", file, line, message,
                condition);
  write_to_stderr(text.data(), kReaderWaitMs);
  std::abort();
}

}  // namespace rkv
