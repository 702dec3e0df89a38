#include "tests/history/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/layout.h"

namespace rkv::history {

std::string stretched(const std::string& tag, std::size_t length) {
  const std::string word = tag + ":";
  std::string value;
  while (value.size() < std::max(length, word.size()))
    value += word;
  value.resize(std::max(length, word.size()));
  return value;
}

std::string tag_of(const std::string& value) {
  std::string tag = value.substr(0, value.find(':'));
  if (value == stretched(tag, value.size())) return tag;
  return fmt::format("not whole: {} bytes beginning with {}", value.size(), tag.substr(0, 20));
}

Choices::Choices(const RunOptions& options, int number)
    : options_(options),
      number_(number),
      random_(options.seed * 1000 + static_cast<std::uint64_t>(number)) {}

Choices::Key Choices::key_at(std::size_t number) const {
  using Kind = Key::Kind;
  static constexpr std::array<const char*, 3> kNames = {"text", "count", "brief"};
  const std::size_t kind = number % 3;
  const char* heat = number < options_.hot_keys ? "hot" : "cold";
  return {fmt::format("{}{}-{}-{}", options_.prefix, heat, kNames.at(kind), number),
          static_cast<Kind>(kind)};
}

Choices::Key Choices::any_key() {
  const bool hot = random_.below(2) == 0;
  if (hot) return key_at(random_.below(options_.hot_keys));
  return key_at(options_.hot_keys + random_.below(options_.cold_keys));
}

std::string Choices::any_value() {
  // Often two lengths, so that keys exchange blocks; seldom lengths that take other paths.
  static constexpr std::array<std::size_t, 4> kLengths = {20, 60, 20, 400};
  static constexpr std::array<std::size_t, 3> kLong = {3'000, 9'000, kMaxInlineBytes + 5'000};
  const std::string tag = fmt::format("{}-{}", number_, ++written_);
  const bool is_long = random_.below(100) == 0;
  return stretched(
      tag, is_long ? kLong[random_.below(kLong.size())] : kLengths[random_.below(kLengths.size())]);
}

std::chrono::milliseconds Choices::any_timeout() {
  return random_.below(10) == 0 ? std::chrono::milliseconds(50) : options_.timeout;
}

}  // namespace rkv::history
