#include "common/hash.h"

#include "rkv/export.h"

// Inline the library: a call into it costs as much as hashing a short key.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace rkv {

// Exported: librkv_rdma_extras uses it.
RKV_EXPORT std::uint64_t xxh3(Bytes bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

namespace {
XXH3_state_t* state_in(std::byte* bytes) {
  static_assert(sizeof(XXH3_state_t) <= sizeof(Xxh3Stream) && alignof(XXH3_state_t) <= 64);
  return reinterpret_cast<XXH3_state_t*>(bytes);
}
}  // namespace

Xxh3Stream::Xxh3Stream(std::uint64_t seed) {
  static_assert(sizeof(XXH3_state_t) <= kStateBytes);
  auto* const state = state_in(state_.data());
  XXH3_INITSTATE(state);
  XXH3_64bits_reset_withSeed(state, seed);
}
void Xxh3Stream::update(Bytes bytes) {
  XXH3_64bits_update(state_in(state_.data()), bytes.data(), bytes.size());
}
std::uint64_t Xxh3Stream::digest() const {
  return XXH3_64bits_digest(state_in(const_cast<std::byte*>(state_.data())));
}

}  // namespace rkv
