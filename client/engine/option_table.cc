#include "client/engine/option_table.h"

#include <fmt/format.h>

#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>

#include "common/parse.h"

namespace rkv::client {

namespace {

template <class Value>
std::optional<Value> parse(std::string_view text, const ClientOption& option) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return std::string(text);
  } else if constexpr (std::is_same_v<Value, std::chrono::milliseconds>) {
    const auto ms = parse_duration_ms(text);
    return ms ? std::optional(Value(*ms)) : std::nullopt;
  } else if constexpr (std::is_same_v<Value, std::size_t>) {
    const auto bytes = parse_size(text);
    return bytes ? std::optional(*bytes) : std::nullopt;
  } else if constexpr (std::is_enum_v<Value> || std::is_same_v<Value, bool>) {
    const auto words = words_of(option);
    const auto place = std::ranges::find(words, text) - words.begin();
    if (place == std::ssize(words)) return std::nullopt;
    return std::is_enum_v<Value> ? static_cast<Value>(place) : static_cast<Value>(place == 0);
  } else {
    const auto number = parse_number<std::int64_t>(text, option.least, option.most);
    return number ? std::optional(static_cast<Value>(*number)) : std::nullopt;
  }
}

}  // namespace

bool set_option(ClientOptions& options, const ClientOption& option, std::string_view text) {
  return std::visit(
      [&]<class Value>(Value ClientOptions::* place) {
        auto value = parse<Value>(text, option);
        if (value) options.*place = *std::move(value);
        return value.has_value();
      },
      option.place);
}

std::string range_of(const ClientOption& option) {
  return fmt::format("a number from {} to {}", option.least, option.most);
}

std::vector<std::string_view> words_of(const ClientOption& option) {
  std::vector<std::string_view> words;
  if (!option.hint.contains('|')) return words;
  for (const auto word : std::views::split(option.hint, '|'))
    words.emplace_back(word.begin(), word.end());
  return words;
}

}  // namespace rkv::client
