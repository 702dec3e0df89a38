#include "server/persistence/wal/log_reader.h"

#include "server/persistence/wal/rocksdb_calls.h"

namespace rkv::server {

namespace {

// Four bytes are processed at a time: table n is for a byte that n more bytes follow.
using Tables = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr Tables make_tables() {
  constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, reflected
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    tables[0][i] = value;
  }
  for (std::size_t n = 1; n < tables.size(); ++n) {
    for (std::size_t i = 0; i < 256; ++i)
      tables[n][i] = (tables[n - 1][i] >> 8) ^ tables[0][tables[n - 1][i] & 0xFF];
  }
  return tables;
}
constexpr Tables kTables = make_tables();

// The form in a log: masking keeps the checksum of bytes that hold checksums effective.
constexpr std::uint32_t masked(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

}  // namespace

std::uint32_t crc32c(Bytes bytes) {
  std::uint32_t crc = ~0U;
  for (; bytes.size() >= 4; bytes = bytes.subspan(4)) {
    crc ^= load_le<std::uint32_t>(bytes.data());
    crc = kTables[3][crc & 0xFF] ^ kTables[2][(crc >> 8) & 0xFF] ^ kTables[1][(crc >> 16) & 0xFF] ^
          kTables[0][crc >> 24];
  }
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xFF];
  return ~crc;
}

bool LogReader::fill() {
  at_ = 0;
  block_ = {};
  rocksdb::Slice read;
  failure_ = database::guarded([&] { return file_->Read(buffer_.size(), &read, buffer_.data()); });
  if (!failure_.ok()) return false;
  block_ = database::bytes_of(read);
  block_end_ += block_.size();
  return !block_.empty();
}

// The next fragment; nullopt at the end, and where the bytes are not a sound fragment.
std::optional<LogReader::Fragment> LogReader::take_fragment() {
  const bool in_trailer = block_.size() == kBlockBytes && block_.size() - at_ < kHeaderBytes;
  if ((at_ == block_.size() || in_trailer) && !fill()) return std::nullopt;
  const Bytes bytes = block_.subspan(at_);
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  const auto type = static_cast<std::uint8_t>(bytes[6]);
  const std::size_t length = kHeaderBytes + load_le<std::uint16_t>(bytes.data() + 4);
  if (type < kWhole || type > kLast || length > bytes.size()) return std::nullopt;
  const std::uint32_t expected = masked(crc32c(bytes.subspan(6, length - 6)));
  if (load_le<std::uint32_t>(bytes.data()) != expected) return std::nullopt;
  at_ += length;
  return Fragment{.type = static_cast<Type>(type),
                  .bytes = bytes.subspan(kHeaderBytes, length - kHeaderBytes)};
}

bool LogReader::next() {
  record_.clear();
  for (bool begun = false;; begun = true) {
    const auto fragment = take_fragment();
    if (!fragment) return false;
    const bool begins = fragment->type == kWhole || fragment->type == kFirst;
    if (begins == begun) return false;
    record_.append(as_text(fragment->bytes));
    if (fragment->type == kFirst || fragment->type == kMiddle) continue;
    sound_bytes_ = block_end_ - (block_.size() - at_);
    return true;
  }
}

}  // namespace rkv::server
