#include "bench/kvbench/record.h"

#include <charconv>
#include <cstring>
#include <optional>

namespace rkv::kvbench {

namespace {

constexpr char kFormat = 1;

std::size_t varint_bytes(std::uint64_t number) {
  std::size_t bytes = 1;
  while (number >= 0x80) {
    number >>= 7;
    ++bytes;
  }
  return bytes;
}

void append_varint(std::uint64_t number, std::string& out) {
  while (number >= 0x80) {
    out.push_back(static_cast<char>(number | 0x80U));
    number >>= 7;
  }
  out.push_back(static_cast<char>(number));
}

// Takes a varint from the front; at most five bytes, so that no length overflows.
std::optional<std::uint64_t> take_varint(std::string_view& in) {
  std::uint64_t number = 0;
  for (unsigned i = 0; i < 5 && i < in.size(); ++i) {
    const auto byte = static_cast<unsigned char>(in[i]);
    number |= std::uint64_t{byte & 0x7FU} << (7 * i);
    if (byte < 0x80) {
      in.remove_prefix(i + 1);
      return number;
    }
  }
  return std::nullopt;
}

// Continues java.lang.String.hashCode with the next characters.
void hash_on(std::uint32_t& hash, std::string_view text) {
  for (const char c : text)
    hash = 31 * hash + static_cast<unsigned char>(c);
}

}  // namespace

std::size_t most_record_bytes(std::size_t fields, std::size_t field_bytes) {
  return 1 + varint_bytes(fields) + fields * (varint_bytes(field_bytes) + field_bytes);
}

void encode_record(const std::vector<std::string_view>& fields, std::string& value) {
  value.assign(1, kFormat);
  append_varint(fields.size(), value);
  for (const std::string_view field : fields)
    append_varint(field.size(), value);
  for (const std::string_view field : fields)
    value.append(field);
}

bool decode_record(std::string_view value, std::vector<std::string_view>& fields) {
  fields.clear();
  if (value.empty() || value.front() != kFormat) return false;
  std::string_view lengths = value.substr(1);
  const auto count = take_varint(lengths);
  if (!count || *count > lengths.size()) return false;  // a length takes at least one byte
  std::string_view bytes = lengths;
  for (std::uint64_t i = 0; i < *count; ++i) {
    if (!take_varint(bytes)) return false;
  }
  for (std::uint64_t i = 0; i < *count; ++i) {
    const std::uint64_t length = *take_varint(lengths);
    if (length > bytes.size()) return false;
    fields.push_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return bytes.empty();
}

bool replace_field(std::string& value, std::size_t field, std::string_view bytes,
                   std::vector<std::string_view>& fields, std::string& spare) {
  if (!decode_record(value, fields) || field >= fields.size()) return false;
  if (fields[field].size() == bytes.size()) {
    if (!bytes.empty()) {
      std::memcpy(value.data() + (fields[field].data() - value.data()), bytes.data(), bytes.size());
    }
    return true;
  }
  fields[field] = bytes;
  encode_record(fields, spare);
  value.swap(spare);
  return true;
}

void append_random_bytes(Random& random, std::size_t bytes, std::string& out) {
  // YCSB's masks of three bytes in turn are 31, 63 and 95. Eight bytes are made at once, so that
  // making values takes a small part of the time of a PUT. No sum of a byte carries.
  static constexpr std::uint64_t kMasks[] = {0x3F1F5F3F1F5F3F1F, 0x1F5F3F1F5F3F1F5F,
                                             0x5F3F1F5F3F1F5F3F};
  constexpr std::uint64_t kSpaces = 0x2020202020202020;
  const std::size_t before = out.size();
  out.resize(before + bytes);
  char* at = out.data() + before;
  std::size_t turn = 0;
  const auto eight = [&] {
    const std::uint64_t made = (random() & kMasks[turn]) + kSpaces;
    turn = turn == 2 ? 0 : turn + 1;
    return made;
  };
  for (; bytes >= 8; bytes -= 8, at += 8) {
    const std::uint64_t made = eight();
    std::memcpy(at, &made, 8);
  }
  const std::uint64_t last = eight();
  std::memcpy(at, &last, bytes);
}

void deterministic_bytes(std::string_view key, std::string_view field_name, std::size_t bytes,
                         std::string& out) {
  out.assign(key);
  out.push_back(':');
  out.append(field_name);
  std::uint32_t hash = 0;
  hash_on(hash, out);
  while (out.size() < bytes) {
    const std::size_t before = out.size();
    out.push_back(':');
    // YCSB appends the colon first, then the hash of everything before it.
    hash_on(hash, ":");
    char digits[12];
    const auto [end, error] =
        std::to_chars(digits, digits + sizeof digits, static_cast<std::int32_t>(hash));
    out.append(digits, static_cast<std::size_t>(end - digits));
    hash_on(hash, std::string_view(out).substr(before + 1));
  }
  out.resize(bytes);
}

}  // namespace rkv::kvbench
