// Replaces YCSB's draws from java.util.concurrent.ThreadLocalRandom by draws from rkv::Random.
#pragma once

#include <cstdint>

#include "common/random.h"

namespace rkv::kvbench {

// In [0, 1), every multiple of 2^-53 equally likely, as Java's nextDouble().
inline double next_double(Random& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

}  // namespace rkv::kvbench
