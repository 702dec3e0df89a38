// YCSB's key names: "user" and a number, hashed unless insertorder=ordered.
#pragma once

#include <cstdint>
#include <string>

namespace rkv::kvbench {

// The 64-bit FNV-1a of the number's 8 bytes, least significant first, taken as signed, and then the
// absolute value as Java's Math.abs computes it (site.ycsb.Utils.fnvhash64). Math.abs leaves the
// least number negative, and so does this function.
constexpr std::int64_t ycsb_hash(std::int64_t number) {
  constexpr std::uint64_t kOffsetBasis = 0xCBF29CE484222325U;
  constexpr std::uint64_t kPrime = 1099511628211U;
  auto rest = static_cast<std::uint64_t>(number);
  std::uint64_t hash = kOffsetBasis;
  for (int i = 0; i < 8; ++i) {
    hash = (hash ^ (rest & 0xFFU)) * kPrime;
    rest >>= 8;
  }
  const auto as_signed = static_cast<std::int64_t>(hash);
  return as_signed < 0 ? static_cast<std::int64_t>(0 - hash) : as_signed;
}

struct KeyNames {
  bool ordered = false;          // insertorder=ordered: the number itself; false: its hash
  std::size_t zero_padding = 1;  // least number of digits

  // Writes the name to `key` and reuses the memory of `key`.
  void write(std::uint64_t number, std::string& key) const;
  std::string name(std::uint64_t number) const {
    std::string key;
    write(number, key);
    return key;
  }
};

}  // namespace rkv::kvbench
