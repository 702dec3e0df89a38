// The key hash and the use of its bits; the checksum function of groups and records.
//
// Both are 64-bit XXH3 (xxHash 0.8, frozen), whose values are part of the layout (LAYOUT.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/bytes.h"

namespace rkv {

std::uint64_t xxh3(Bytes bytes, std::uint64_t seed);

// xxh3() over bytes that arrive in pieces.
class Xxh3Stream {
 public:
  explicit Xxh3Stream(std::uint64_t seed);
  void update(Bytes bytes);
  std::uint64_t digest() const;

 private:
  static constexpr std::size_t kStateBytes = 640;
  alignas(64) std::array<std::byte, kStateBytes> state_;
};

// Hash of a key under the epoch's hash seed. The bit ranges are disjoint, so that each choice is
// independent of the others:
//   63..37 prefix (directory)   36..25 group index   24..16 hint stripe   15..0 fingerprint
class KeyHash {
 public:
  static constexpr int kPrefixBits = 27;
  static constexpr int kGroupBits = 12;
  static constexpr int kStripeBits = 9;
  static constexpr int kFingerprintBits = 16;
  static_assert(kPrefixBits + kGroupBits + kStripeBits + kFingerprintBits == 64);

  KeyHash(Bytes key, std::uint64_t hash_seed) : bits_(xxh3(key, hash_seed)) {}
  explicit constexpr KeyHash(std::uint64_t bits) : bits_(bits) {}

  std::uint64_t bits() const { return bits_; }
  std::uint32_t prefix() const { return static_cast<std::uint32_t>(bits_ >> 37); }
  // Returns the first `depth` bits of the prefix as a number; depth 0 to 27.
  std::uint32_t directory_index(unsigned depth) const {
    return depth == 0 ? 0 : static_cast<std::uint32_t>(bits_ >> (64 - depth));
  }
  // `group_count` is a power of two, 2 to 4096.
  std::uint32_t group_index(std::uint32_t group_count) const {
    return static_cast<std::uint32_t>(bits_ >> 25) & (group_count - 1);
  }
  std::uint32_t stripe() const { return static_cast<std::uint32_t>(bits_ >> 16) & 0x1FFU; }
  std::uint16_t fingerprint() const { return static_cast<std::uint16_t>(bits_); }

 private:
  std::uint64_t bits_;
};

}  // namespace rkv
