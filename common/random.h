// Random numbers: xoshiro256** where speed and repeatability matter, the kernel where values must
// not repeat.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace rkv {

// One round of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes every bit.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// xoshiro256** 1.0 (Blackman, Vigna). Not for secrets. Use one per thread. A
// UniformRandomBitGenerator.
class Random {
 public:
  using result_type = std::uint64_t;
  explicit Random(std::uint64_t seed) {
    for (auto& word : state_) {
      word = mix64(seed);
      seed += 0x9E3779B97F4A7C15U;
    }
  }
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  // Uniform in [0, bound), bound > 0. Bias below 2^-32 for bounds below 2^32.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((Wide{(*this)()} * bound) >> 64);
  }

 private:
  __extension__ typedef unsigned __int128 Wide;
  std::array<std::uint64_t, 4> state_{};
};

// Returns 64 bits from getrandom(2), never 0, for epochs, sessions and hash seeds. Blocks only at
// boot.
std::uint64_t random_from_kernel();

}  // namespace rkv
