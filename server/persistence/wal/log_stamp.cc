#include "server/persistence/wal/log_stamp.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "server/persistence/wal/log_reader.h"

namespace rkv::server {

namespace {

constexpr std::size_t kMarkBytes = 8;
constexpr std::size_t kStatementBytes = kMarkBytes + 8 + 8;
constexpr std::size_t kStampBytes = kStatementBytes + 4;

std::optional<LogFilePosition> read_stamp(Bytes stamp) {
  const Bytes statement = stamp.first(kStatementBytes);
  if (crc32c(statement) != load_le<std::uint32_t>(stamp.data() + kStatementBytes))
    return std::nullopt;
  return LogFilePosition{.log = load_le<std::uint64_t>(stamp.data() + kMarkBytes),
                         .bytes = load_le<std::uint64_t>(stamp.data() + kMarkBytes + 8)};
}

}  // namespace

std::string stamp_of(const LogFilePosition& synced, std::uint64_t mark) {
  std::array<std::byte, kStampBytes> stamp{};
  store_le(stamp.data(), mark);
  store_le(stamp.data() + kMarkBytes, synced.log);
  store_le(stamp.data() + kMarkBytes + 8, synced.bytes);
  store_le(stamp.data() + kStatementBytes, crc32c(Bytes(stamp).first(kStatementBytes)));
  return std::string(as_text(stamp));
}

StampFinder::StampFinder(std::uint64_t mark) : mark_(stamp_of({}, mark).substr(0, kMarkBytes)) {}

// A record continues in the next block behind a fragment header, which is always at the beginning
// of the block. Without that header the two parts of a stamp are adjacent again (STAMP-2).
void StampFinder::add(Bytes block) {
  text_.append(as_text(block.subspan(std::min(block.size(), LogReader::kHeaderBytes))));
  for (std::size_t at = text_.find(mark_); at != std::string::npos;
       at = text_.find(mark_, at + 1)) {
    const Bytes found = as_bytes(std::string_view(text_).substr(at));
    if (found.size() < kStampBytes) break;
    if (const auto stamp = read_stamp(found.first(kStampBytes)))
      highest_ = std::max(highest_, stamp);
  }
  text_.erase(0, text_.size() - std::min(text_.size(), kStampBytes - 1));
}

}  // namespace rkv::server
