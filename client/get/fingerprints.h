// Finds the slots of a group that have a fingerprint: one bit for each slot. A loop slot by slot
// took a fifth of a warm GET's instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/layout.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace rkv::client {

static_assert(kSlotsPerGroup < 32);

// Bit i is set if slot i has `wanted` in its top 16 bits. Empty slots have 0 there.
inline std::uint32_t slots_with_plain(const Group& group, std::uint16_t wanted) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < kSlotsPerGroup; ++i)
    found |= std::uint32_t{Slot{group.slots[i]}.fingerprint() == wanted} << i;
  return found;
}

#ifdef __SSE2__
inline std::uint32_t slots_with(const Group& group, std::uint16_t wanted) {
  static_assert(sizeof(Group) == 32 * sizeof(Slot) && offsetof(Group, slots) == 2 * sizeof(Slot));
  const auto* words = reinterpret_cast<const __m128i*>(&group);  // header words are slots -2, -1
  const __m128i pattern = _mm_set1_epi16(static_cast<short>(wanted));
  std::uint32_t found = 0;
  for (std::size_t eight = 0; eight < 4; ++eight) {
    // Takes the upper 32 bits of each of eight words, then their upper 16: eight fingerprints in a
    // row.
    const auto upper = [&](std::size_t pair) {
      const __m128 a = _mm_castsi128_ps(_mm_loadu_si128(words + eight * 4 + pair));
      const __m128 b = _mm_castsi128_ps(_mm_loadu_si128(words + eight * 4 + pair + 1));
      return _mm_srai_epi32(_mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1))), 16);
    };
    const __m128i fingerprints = _mm_packs_epi32(upper(0), upper(2));
    const __m128i equal = _mm_cmpeq_epi16(fingerprints, pattern);
    const int bits = _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128()));
    found |= static_cast<std::uint32_t>(bits) << (eight * 8);
  }
  return found >> 2;
}
#else
inline std::uint32_t slots_with(const Group& group, std::uint16_t wanted) {
  return slots_with_plain(group, wanted);
}
#endif

}  // namespace rkv::client
