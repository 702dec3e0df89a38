#include "client/cli/text.h"

#include <array>
#include <cstdint>
#include <utility>

namespace rkv::cli {

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<char> hex_byte(std::string_view two) {
  if (two.size() < 2) return std::nullopt;
  const int high = hex_value(two[0]);
  const int low = hex_value(two[1]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

unsigned byte_at(std::string_view bytes, std::size_t i) {
  return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U;
}

// Returns the length of the UTF-8 sequence at the start of `bytes`; 0 if there is none.
std::size_t utf8_sequence(std::string_view bytes) {
  const unsigned first = byte_at(bytes, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || bytes.size() < length) return 0;
  std::uint32_t point = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(bytes, i) & 0xC0U) != 0x80) return 0;
    point = (point << 6) | (byte_at(bytes, i) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return point < kLeast[length] || point > 0x10FFFF || surrogate ? 0 : length;
}

// Whether the sequence is a control character, of ASCII or from U+0080 to U+009F: some terminals
// obey these as well.
bool is_control(std::string_view sequence) {
  const unsigned first = byte_at(sequence, 0);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && byte_at(sequence, 1) < 0xA0);
}

}  // namespace

std::string to_hex(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out += kHexDigits[static_cast<unsigned char>(c) >> 4];
    out += kHexDigits[static_cast<unsigned char>(c) & 0xFU];
  }
  return out;
}

std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 2);
  for (; !text.empty(); text.remove_prefix(2)) {
    const auto byte = hex_byte(text);
    if (!byte) return std::nullopt;
    out += *byte;
  }
  return out;
}

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const unsigned three =
        (byte_at(bytes, i) << 16) | (byte_at(bytes, i + 1) << 8) | byte_at(bytes, i + 2);
    const std::size_t left = bytes.size() - i;
    out += kBase64Digits[three >> 18];
    out += kBase64Digits[(three >> 12) & 63U];
    out += left > 1 ? kBase64Digits[(three >> 6) & 63U] : '=';
    out += left > 2 ? kBase64Digits[three & 63U] : '=';
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = kBase64Digits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<unsigned>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>((bits >> count) & 0xFFU);
  }
  // The remaining bits must be zero, else two texts would stand for the same bytes.
  if ((bits & ((1U << count) - 1)) != 0) return std::nullopt;
  return out;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = utf8_sequence(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string escape_tsv(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t length = utf8_sequence(bytes);
    const char c = bytes.front();
    if (c == '\t') {
      out += "\\t";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\\') {
      out += "\\\\";
    } else if (length == 0 || is_control(bytes)) {
      out += "\\x" + to_hex(bytes.substr(0, 1));
    } else {
      out += bytes.substr(0, length);
      bytes.remove_prefix(length);
      continue;
    }
    bytes.remove_prefix(1);
  }
  return out;
}

namespace {

struct Unescaped {
  std::string bytes;
  std::size_t stopped = std::string_view::npos;  // position of an unknown escape
};

Unescaped unescape(std::string_view text) {
  Unescaped out;
  out.bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.bytes += text[i];
      continue;
    }
    const std::size_t start = i++;
    const char kind = i < text.size() ? text[i] : '\0';
    constexpr std::string_view kKinds = "tnr\\";
    constexpr std::string_view kBytes = "\t\n\r\\";
    if (const std::size_t known = kKinds.find(kind); known != std::string_view::npos) {
      out.bytes += kBytes[known];
      continue;
    }
    const auto byte = kind == 'x' ? hex_byte(text.substr(i + 1)) : std::nullopt;
    if (!byte) {
      out.stopped = start;
      return out;
    }
    out.bytes += *byte;
    i += 2;
  }
  return out;
}

}  // namespace

std::string for_terminal(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const bool is_layout = bytes.front() == '\n' || bytes.front() == '\t';
    std::size_t length = is_control(bytes) && !is_layout ? 0 : utf8_sequence(bytes);
    if (length == 0) {
      out += "\\x" + to_hex(bytes.substr(0, 1));
      length = 1;
    } else {
      out += bytes.substr(0, length);
    }
    bytes.remove_prefix(length);
  }
  return out;
}

std::optional<std::string> unescape_tsv(std::string_view text) {
  Unescaped out = unescape(text);
  if (out.stopped != std::string_view::npos) return std::nullopt;
  return std::move(out.bytes);
}

std::size_t bad_escape_at(std::string_view text) {
  return unescape(text).stopped;
}

}  // namespace rkv::cli
