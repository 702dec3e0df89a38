#include "common/hash.h"

// Compiled in: a call through the library costs as much as hashing a short key does.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace rkv {

std::uint64_t xxh3(Bytes bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace rkv
