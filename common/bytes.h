// Bytes: little-endian loads and stores, and copies that may race with a remote READ or another
// thread. The span types are in rkv/bytes.h.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rkv/bytes.h"  // IWYU pragma: export

namespace rkv {

static_assert(
    std::endian::native == std::endian::little,
    "the memory layout is little-endian; a big-endian port needs swaps in layout and wire");

// Unaligned little-endian access to plain (unshared) memory.
template <class T>
T load_le(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store_le(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Words that others read while this process writes (remote READs, other threads). 8-byte aligned.
inline std::uint64_t load_word(const std::uint64_t* from,
                               std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref<std::uint64_t>(*const_cast<std::uint64_t*>(from)).load(order);
}
inline void store_word(std::uint64_t* to, std::uint64_t value,
                       std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref<std::uint64_t>(*to).store(value, order);
}

// Copies plain bytes into shared memory word by word (relaxed). `to` is 8-byte aligned and holds
// `from` rounded up to 8 bytes; bytes after the end are set to zero. The order of the words is not
// defined: readers verify their copy by a checksum. Compilers do not unroll loops of atomics.
inline void copy_to_shared(std::byte* to, Bytes from) {
  auto* words = reinterpret_cast<std::uint64_t*>(to);
  const std::byte* at = from.data();
  std::size_t left = from.size();
  for (; left >= 32; left -= 32, at += 32, words += 4) {
    store_word(words, load_le<std::uint64_t>(at));
    store_word(words + 1, load_le<std::uint64_t>(at + 8));
    store_word(words + 2, load_le<std::uint64_t>(at + 16));
    store_word(words + 3, load_le<std::uint64_t>(at + 24));
  }
  for (; left >= 8; left -= 8, at += 8)
    store_word(words++, load_le<std::uint64_t>(at));
  if (left == 0) return;
  std::uint64_t last = 0;
  std::memcpy(&last, at, left);
  store_word(words, last);
}

// Copies shared memory into plain bytes word by word (relaxed). `from` is 8-byte aligned; whole
// words are read, so `to.size()` rounded up to 8 bytes must be readable.
inline void copy_from_shared(MutableBytes to, const std::byte* from) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(from);
  std::byte* at = to.data();
  std::size_t left = to.size();
  for (; left >= 32; left -= 32, at += 32, words += 4) {
    store_le(at, load_word(words));
    store_le(at + 8, load_word(words + 1));
    store_le(at + 16, load_word(words + 2));
    store_le(at + 24, load_word(words + 3));
  }
  for (; left >= 8; left -= 8, at += 8)
    store_le(at, load_word(words++));
  if (left == 0) return;
  const std::uint64_t last = load_word(words);
  std::memcpy(at, &last, left);
}

}  // namespace rkv
