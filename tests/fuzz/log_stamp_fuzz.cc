// Stamps in a write-ahead log (server/persistence/wal/log_stamp.h): every sound one is found,
// whatever is around it, also one that the end of a block divides (STAMP-2), and nothing else is.
#include <optional>
#include <string>
#include <vector>

#include "server/persistence/wal/log_reader.h"
#include "server/persistence/wal/log_stamp.h"
#include "tests/fuzz/fuzz.h"

namespace {

using rkv::Bytes;
using rkv::server::LogFilePosition;
using rkv::server::LogReader;

constexpr std::uint64_t kMark = 0x0102030401020304U;  // one that a copy of its begin continues
constexpr std::size_t kStampBytes = 28;

// Looks everywhere.
std::optional<LogFilePosition> highest_in(const std::string& text) {
  const std::string mark = rkv::server::stamp_of({}, kMark).substr(0, 8);
  std::optional<LogFilePosition> highest;
  for (std::size_t at = 0; at + kStampBytes <= text.size(); ++at) {
    if (text.compare(at, mark.size(), mark) != 0) continue;
    const auto* const bytes = reinterpret_cast<const std::byte*>(text.data() + at);
    const LogFilePosition position{.log = rkv::load_le<std::uint64_t>(bytes + 8),
                                   .bytes = rkv::load_le<std::uint64_t>(bytes + 16)};
    if (text.compare(at, kStampBytes, rkv::server::stamp_of(position, kMark)) != 0) continue;
    highest = std::max(highest, std::optional(position));
  }
  return highest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv::server;
  rkv::fuzz::Input input(data, size);
  const std::size_t block_bytes = LogReader::kHeaderBytes + 1 + (input.number<std::uint8_t>() % 64);
  std::string text;  // of all blocks, without their headers
  while (!input.empty() && text.size() < 4096) {
    const auto kind = input.number<std::uint8_t>();
    if (kind % 2 == 0) {
      text += rkv::as_text(input.take(kind / 8));
      continue;
    }
    std::string stamp = stamp_of(
        {.log = input.number<std::uint8_t>(), .bytes = input.number<std::uint16_t>()}, kMark);
    if (kind % 8 == 3) stamp.resize(kind % kStampBytes);
    if (kind % 8 == 5) stamp[kind % kStampBytes] ^= 1;
    text += stamp;
  }
  StampFinder finder(kMark);
  const std::size_t body = block_bytes - LogReader::kHeaderBytes;
  for (std::size_t at = 0; at < text.size(); at += body) {
    const std::string block(std::string(LogReader::kHeaderBytes, '\x04') + text.substr(at, body));
    finder.add(rkv::as_bytes(block));
  }
  RKV_CHECK(finder.highest() == highest_in(text), "a stamp was missed or made up (STAMP-2)");
  return 0;
}
