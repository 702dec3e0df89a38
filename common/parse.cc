#include "common/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace rkv {

namespace {

struct Number {
  std::uint64_t value;
  std::string_view unit;
};

Result<Number> split_number(std::string_view text, const char* advice) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return fail(Code::kInvalidArgument, advice);
  return Number{value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char lower = (a[i] >= 'A' && a[i] <= 'Z') ? static_cast<char>(a[i] - 'A' + 'a') : a[i];
    if (lower != b[i]) return false;
  }
  return true;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  static constexpr const char* kAdvice = "write a size as 4096, 64K, 512MiB or 1GiB";
  RKV_ASSIGN_OR_RETURN(const Number number, split_number(text, kAdvice));
  struct Unit {
    std::string_view name;
    std::uint64_t bytes;
  };
  static constexpr std::uint64_t kKi = 1024;
  static constexpr std::uint64_t kKilo = 1000;
  static constexpr std::array<Unit, 14> kUnits{{{"", 1},
                                                {"b", 1},
                                                {"k", kKi},
                                                {"kib", kKi},
                                                {"kb", kKilo},
                                                {"m", kKi * kKi},
                                                {"mib", kKi * kKi},
                                                {"mb", kKilo * kKilo},
                                                {"g", kKi * kKi * kKi},
                                                {"gib", kKi * kKi * kKi},
                                                {"gb", kKilo * kKilo * kKilo},
                                                {"t", kKi * kKi * kKi * kKi},
                                                {"tib", kKi * kKi * kKi * kKi},
                                                {"tb", kKilo * kKilo * kKilo * kKilo}}};
  for (const Unit& unit : kUnits) {
    if (!equal_ignoring_case(number.unit, unit.name)) continue;
    if (number.value > std::numeric_limits<std::uint64_t>::max() / unit.bytes) break;
    return number.value * unit.bytes;
  }
  return fail(Code::kInvalidArgument, kAdvice);
}

Result<std::uint64_t> parse_duration_ms(std::string_view text) {
  static constexpr const char* kAdvice = "write a duration as 250ms, 5s, 2m, 12h or 7d";
  RKV_ASSIGN_OR_RETURN(const Number number, split_number(text, kAdvice));
  static constexpr std::uint64_t kLongest = 1000ULL * 3600 * 24 * 366;  // a year, in ms
  static_assert(kLongest <= UINT64_MAX / 86'400'000);                   // nothing below overflows
  if (number.value > kLongest) return fail(Code::kInvalidArgument, kAdvice);
  std::uint64_t ms = 0;
  if (number.unit == "us") {
    ms = (number.value + 999) / 1000;
  } else if (number.unit == "ms") {
    ms = number.value;
  } else if (number.unit == "s") {
    ms = number.value * 1000;
  } else if (number.unit == "m") {
    ms = number.value * 60'000;
  } else if (number.unit == "h") {
    ms = number.value * 3'600'000;
  } else if (number.unit == "d") {
    ms = number.value * 86'400'000;
  } else {
    return fail(Code::kInvalidArgument, kAdvice);
  }
  if (ms > kLongest) return fail(Code::kInvalidArgument, kAdvice);
  return ms;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F) {
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

std::string shown(std::string_view value) {
  static constexpr std::size_t kMost = 100;
  std::size_t end = std::min(value.size(), kMost);
  // Do not cut within a multi-byte character.
  while (end < value.size() && end > 0 && (static_cast<unsigned char>(value[end]) >> 6U) == 2)
    --end;
  std::string out = printable(value.substr(0, end));
  return end < value.size() ? out + "..." : out;
}

}  // namespace rkv
