// Text to numbers with units, for flags and configuration files; text for display.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "rkv/result.h"

namespace rkv {

// Parses a whole or real number (as T is) that fills all of `text`: no white space, no '+', no
// unit.
template <class T>
std::optional<T> parse_number(std::string_view text, T least = std::numeric_limits<T>::lowest(),
                              T most = std::numeric_limits<T>::max()) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!(number >= least && number <= most)) return std::nullopt;  // also false for a NaN
  return number;
}

// "4096", "64K", "64KiB", "1GiB", "2g": binary units; "1GB", "64kB": decimal ones (10^9, 64,000).
// Case is ignored. kInvalidArgument otherwise.
Result<std::uint64_t> parse_size(std::string_view text);
// "100us", "250ms", "5s", "2m", "12h", "7d", up to 366 days; a number without a unit is an error.
// Returns milliseconds, rounded up.
Result<std::uint64_t> parse_duration_ms(std::string_view text);

// Escapes control characters as \n or \x1b. Bytes of a peer or a file then cannot create lines.
std::string printable(std::string_view text);
// Formats a value for display in a sentence: printable(), at most its first 100 bytes and "...".
std::string shown(std::string_view value);

}  // namespace rkv
