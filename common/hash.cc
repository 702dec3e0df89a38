#include "common/hash.h"

#include <xxhash.h>

namespace rkv {

std::uint64_t xxh3(Bytes bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace rkv
