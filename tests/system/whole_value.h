// Values that say whether they are whole: each word follows from the first.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace rkv::testing_support {

inline std::uint64_t whole_word(std::uint64_t counter, std::size_t index) {
  return counter * 0x9E3779B97F4A7C15U + index * 0xD1B54A32D192ED03U;
}

// `words` of 8 bytes, the first of which is the counter itself.
inline std::string whole_value(std::uint64_t counter, std::size_t words) {
  std::string value(words * 8, '\0');
  std::memcpy(value.data(), &counter, 8);
  for (std::size_t i = 1; i < words; ++i) {
    const std::uint64_t word = whole_word(counter, i);
    std::memcpy(value.data() + i * 8, &word, 8);
  }
  return value;
}

// False for a mixture of two values.
inline bool is_whole(std::string_view value, std::uint64_t* counter) {
  if (value.size() < 8 || value.size() % 8 != 0) return false;
  std::memcpy(counter, value.data(), 8);
  for (std::size_t i = 1; i < value.size() / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, value.data() + i * 8, 8);
    if (word != whole_word(*counter, i)) return false;
  }
  return true;
}

}  // namespace rkv::testing_support
