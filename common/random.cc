#include "common/random.h"

#include <sys/random.h>

#include "common/check.h"

namespace rkv {

std::uint64_t random_from_kernel() {
  std::uint64_t value = 0;
  while (value == 0) {
    const ssize_t got = getrandom(&value, sizeof value, 0);
    RKV_CHECK(got == sizeof value || got < 0, "getrandom(2) is atomic up to 256 bytes");
  }
  return value;
}

}  // namespace rkv
