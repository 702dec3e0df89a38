#include "bench/kvbench/properties.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "common/named_file.h"
#include "common/parse.h"

namespace rkv::kvbench {

namespace {

constexpr std::size_t kLongestShown = 40;  // of a value in an error sentence

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\f';
}

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0U | point >> 6);
    put(0x80U | (point & 0x3FU));
  } else if (point < 0x10000) {
    put(0xE0U | point >> 12);
    put(0x80U | (point >> 6 & 0x3FU));
    put(0x80U | (point & 0x3FU));
  } else {
    put(0xF0U | point >> 18);
    put(0x80U | (point >> 12 & 0x3FU));
    put(0x80U | (point >> 6 & 0x3FU));
    put(0x80U | (point & 0x3FU));
  }
}

// Reads a file by natural lines and keeps track of the position.
class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool at_end() const { return at_ == text_.size(); }
  std::string place() const { return fmt::format("{}:{}:{}", name_, line_, column_); }

  // Skips blank lines, comments and the white space before a key.
  void skip_to_key() {
    while (!at_end()) {
      const char c = text_[at_];
      if (is_blank(c) || is_line_end(c)) {
        step();
      } else if (c == '#' || c == '!') {
        while (!at_end() && !is_line_end(text_[at_]))
          step();
      } else {
        return;
      }
    }
  }

  OrSentence<std::string> key() {
    return take([](char c) { return is_blank(c) || c == '=' || c == ':'; });
  }
  // Skips white space, one = or :, and white space again; each may be on a continued line.
  void skip_separator() {
    skip_blanks();
    if (!at_end() && (text_[at_] == '=' || text_[at_] == ':')) {
      step();
      skip_blanks();
    }
  }
  OrSentence<std::string> value() {
    return take([](char) { return false; });
  }

 private:
  static bool is_line_end(char c) { return c == '\n' || c == '\r'; }

  void step() {
    const char c = text_[at_++];
    const bool ends = c == '\n' || (c == '\r' && (at_end() || text_[at_] != '\n'));
    line_ += ends ? 1 : 0;
    column_ = ends ? 1 : column_ + 1;
  }

  // Skips a backslash before a line end, the line end, and the white space at the begin of the next
  // line.
  bool skip_continuation() {
    if (text_[at_] != '\\' || at_ + 1 == text_.size() || !is_line_end(text_[at_ + 1])) return false;
    step();
    if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') step();
    step();
    while (!at_end() && is_blank(text_[at_]))
      step();
    return true;
  }

  void skip_blanks() {
    while (!at_end()) {
      if (is_blank(text_[at_])) {
        step();
      } else if (!skip_continuation()) {
        return;
      }
    }
  }

  // Reads up to the line's end or to a character for which `ends` is true.
  template <class Ends>
  OrSentence<std::string> take(Ends ends) {
    std::string out;
    while (!at_end() && !is_line_end(text_[at_]) && !ends(text_[at_])) {
      if (text_[at_] == '\\') {
        if (skip_continuation()) continue;
        if (auto escaped = take_escape(out); !escaped) return std::unexpected(escaped.error());
        continue;
      }
      const auto c = static_cast<unsigned char>(text_[at_]);
      if ((c < 0x20 && c != '\t' && c != '\f') || c == 0x7F) {
        return std::unexpected(fmt::format(
            "{}: a control character (byte 0x{:02x}): this is not a property file", place(), c));
      }
      out.push_back(text_[at_]);
      step();
    }
    return out;
  }

  OrSentence<void> take_escape(std::string& out) {
    const std::string begin = place();
    step();  // the backslash
    if (at_end()) return {};
    const char c = text_[at_];
    step();
    if (c != 'u') {
      out.push_back(c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 'f' ? '\f' : c);
      return {};
    }
    const auto unit = take_hex4();
    if (!unit) {
      return std::unexpected(
          fmt::format("{}: \\u needs four hexadecimal digits; write \\\\ for a backslash", begin));
    }
    std::uint32_t point = *unit;
    if (point >= 0xD800 && point < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      step();
      step();
      const auto low = take_hex4();
      if (!low || *low < 0xDC00 || *low > 0xDFFF) {
        return std::unexpected(fmt::format("{}: an unpaired surrogate", begin));
      }
      point = 0x10000 + ((point - 0xD800) << 10) + (*low - 0xDC00);
    } else if (point >= 0xD800 && point <= 0xDFFF) {
      return std::unexpected(fmt::format("{}: an unpaired surrogate", begin));
    }
    append_utf8(out, point);
    return {};
  }

  std::optional<std::uint32_t> take_hex4() {
    std::uint32_t unit = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (error != std::errc{} || digits.size() != 4 || end != digits.data() + 4) return std::nullopt;
    for (int i = 0; i < 4; ++i)
      step();
    return unit;
  }

  const std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t column_ = 1;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

std::string shown(std::string_view value) {
  if (value.size() <= kLongestShown) return fmt::format("'{}'", value);
  return fmt::format("'{}...'", value.substr(0, kLongestShown));
}

}  // namespace

OrSentence<void> Properties::read_text(std::string_view text, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // some editors begin UTF-8 with it
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Reader reader(text, name);
  while (true) {
    reader.skip_to_key();
    if (reader.at_end()) return {};
    auto key = reader.key();
    if (!key) return std::unexpected(key.error());
    reader.skip_separator();
    std::string place = reader.place();
    auto value = reader.value();
    if (!value) return std::unexpected(value.error());
    set(*key, std::move(*value), std::move(place));
  }
}

OrSentence<void> Properties::read_file(const std::string& path) {
  constexpr std::size_t kLargest = std::size_t{1} << 20;
  const auto text = read_named_file(path, kLargest);
  if (!text && text.error().is_too_long) {
    return std::unexpected(fmt::format("{}: larger than 1 MiB: this is not a property file", path));
  }
  if (!text) return std::unexpected(fmt::format("{}: {}", path, text.error().why));
  return read_text(*text, path);
}

void Properties::set(const std::string& name, std::string value, std::string place) {
  properties_[name] = Property{.value = std::move(value), .place = std::move(place)};
}

std::string Properties::text(const std::string& name, std::string_view fallback) const {
  const auto found = properties_.find(name);
  return std::string(found == properties_.end() ? fallback : trimmed(found->second.value));
}

std::string Properties::place(const std::string& name) const {
  const auto found = properties_.find(name);
  return found == properties_.end() ? "" : found->second.place + ": ";
}

OrSentence<std::uint64_t> Properties::number(const std::string& name, std::uint64_t fallback,
                                             std::uint64_t least, std::uint64_t most) const {
  if (!has(name)) return fallback;
  const std::string value = text(name, "");
  const auto number = parse_number<std::uint64_t>(value, least, most);
  if (!number) {
    return std::unexpected(fmt::format("{}{} needs a whole number from {} to {}, not {}",
                                       place(name), name, least, most, shown(value)));
  }
  return *number;
}

OrSentence<double> Properties::real(const std::string& name, double fallback, double least,
                                    double most) const {
  if (!has(name)) return fallback;
  const std::string value = text(name, "");
  const auto number = parse_number<double>(value, least, most);
  if (!number) {
    return std::unexpected(fmt::format("{}{} needs a number from {} to {}, not {}", place(name),
                                       name, least, most, shown(value)));
  }
  return *number;
}

OrSentence<bool> Properties::boolean(const std::string& name, bool fallback) const {
  if (!has(name)) return fallback;
  std::string value = text(name, "");
  std::ranges::transform(value, value.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (value == "true" || value == "false") return value == "true";
  return std::unexpected(
      fmt::format("{}{} needs true or false, not {}", place(name), name, shown(value)));
}

}  // namespace rkv::kvbench
