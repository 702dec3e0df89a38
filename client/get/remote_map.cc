#include "client/get/remote_map.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace rkv::client {

namespace {

// Not kCorrupt yet: the server's thread may have been stopped between body and checksum.
std::unexpected<Error> torn() {
  return fail(Code::kBusy, "a line that the server rewrites in place does not verify");
}

// Returns true if `length` bytes from `address` lie in the 64-bit address space.
bool fits(std::uint64_t address, std::uint64_t length) {
  return address != 0 && address <= std::numeric_limits<std::uint64_t>::max() - length;
}

Status check_identity(const IdentityLine& identity, std::uint64_t epoch) {
  if (identity.magic != kRootMagic || identity.epoch != epoch) {
    return fail(Code::kCorrupt, "the root page is not that of a kvserver");
  }
  if (identity.layout_version != kLayoutVersion) {
    return fail(Code::kVersionMismatch,
                "the server's memory has another layout: install the same version on both sides");
  }
  return {};
}

Status check_directory(const DirectoryLine& line) {
  const std::uint32_t groups = line.groups_per_segment;
  if (!std::has_single_bit(groups) || groups < 2 || groups > (1U << KeyHash::kGroupBits) ||
      line.global_depth > KeyHash::kPrefixBits || line.address % 8 != 0 ||
      !fits(line.address, std::uint64_t{8} << line.global_depth)) {
    return fail(Code::kCorrupt, "the server's directory line is invalid");
  }
  if (line.hash_algorithm != 1) {
    return fail(Code::kUnsupported,
                "the server uses a hash that this client does not know: update the client");
  }
  if (line.global_depth > RemoteMap::kMaxDirectoryDepth) {
    return fail(Code::kUnsupported, "the server's directory is larger than a client can copy");
  }
  return {};
}

}  // namespace

void RemoteMap::begin(std::uint64_t epoch, const RemoteWindow& root, const RemoteWindow& hints,
                      std::uint32_t client) {
  clear();
  epoch_ = epoch;
  root_ = root;
  hints_ = hints;
  client_ = client;
}

Status RemoteMap::apply_identity(Bytes root_page) {
  IdentityLine unproved;
  if (root_page.size() < kIdentityOffset + sizeof unproved) return torn();
  std::memcpy(&unproved, root_page.data() + kIdentityOffset, sizeof unproved);
  // These fields are the same in every version of the line: no torn write explains another value.
  RKV_RETURN_IF_ERROR(check_identity(unproved, epoch_));
  const auto identity = open_line<IdentityLine>(root_page, epoch_, kIdentityOffset);
  if (!identity) return torn();
  if (root_.length < root_bytes(0) || !fits(root_.address, root_.length)) {
    return fail(Code::kCorrupt, "the server's root window is invalid");
  }
  const std::size_t room = (root_.length - kExtentTableOffset) / kExtentEntryBytes;
  if (identity->extent_count > std::min<std::size_t>(room, kMaxExtents)) {
    return fail(Code::kCorrupt, "the server's extent table is longer than its root region");
  }
  // The number of extents only rises (RMAP-3); known extents stay.
  extent_count_ = std::max(extent_count_, identity->extent_count);
  extents_.resize(extent_count_);
  wants_reports_ = (identity->flags & IdentityLine::kReportReads) != 0;
  (void)apply_marks(root_page, 0);  // a free update: the page contains the mark lines
  return {};
}

Status RemoteMap::apply_directory_line(Bytes root_page) {
  const auto line = open_line<DirectoryLine>(root_page, epoch_, kDirectoryLineOffset);
  if (!line) return torn();
  RKV_RETURN_IF_ERROR(check_directory(*line));
  line_ = *line;
  directory_.assign(std::size_t{1} << line_.global_depth, Segment{});
  return {};
}

Status RemoteMap::apply_extents(std::uint32_t first, Bytes entries) {
  bool all = true;
  const std::size_t count = entries.size() / kExtentEntryBytes;
  for (std::size_t i = 0; i < count && first + i < extents_.size(); ++i) {
    ExtentEntry entry;
    const Bytes bytes = entries.subspan(i * kExtentEntryBytes, kExtentEntryBytes);
    std::memcpy(&entry, bytes.data(), sizeof entry);
    const std::size_t offset = kExtentTableOffset + (first + i) * kExtentEntryBytes;
    if (entry.checksum != line_checksum(bytes.first(kExtentEntryBytes - 8), epoch_, offset)) {
      all = false;
      continue;
    }
    const std::uint64_t length = std::uint64_t{entry.units} * kUnitBytes;
    const bool used = entry.kind == ExtentEntry::kIndex || entry.kind == ExtentEntry::kData;
    if (!used || entry.id != first + i || entry.units > kMaxExtentUnits || entry.address % 8 != 0 ||
        !fits(entry.address, length)) {
      continue;  // not an extent that this client can use
    }
    const Extent said{.address = entry.address,
                      .length_bytes = length,
                      .remote_key = entry.remote_key,
                      .kind = entry.kind};
    Extent& known = extents_[first + i];
    if (known.length_bytes != 0 && known != said) {
      return fail(Code::kCorrupt, "the server has moved an extent");
    }
    known = said;  // RMAP-3
  }
  if (!all) return torn();
  return {};
}

void RemoteMap::apply_directory(std::size_t first, Bytes words) {
  const std::size_t count = words.size() / 8;
  for (std::size_t i = 0; i < count && first + i < directory_.size(); ++i) {
    directory_[first + i] = segment_of(load_le<std::uint64_t>(words.data() + i * 8));
  }
}

void RemoteMap::apply_directory_entry(std::size_t index, std::uint64_t word) {
  const Segment segment = segment_of(word);
  std::size_t count = 1;
  const auto entry = DirectoryEntry::decode(word, epoch_);
  if (entry && entry->depth < line_.global_depth) {
    count = std::size_t{1} << (line_.global_depth - entry->depth);
  }
  const std::size_t first = index / count * count;
  for (std::size_t i = first; i < first + count && i < directory_.size(); ++i)
    directory_[i] = segment;
}

RemoteMap::Segment RemoteMap::segment_of(std::uint64_t directory_word) const {
  const auto entry = DirectoryEntry::decode(directory_word, epoch_);
  if (!entry) return {};
  const std::uint64_t first = std::uint64_t{entry->segment} * line_.groups_per_segment;
  static_assert(kMaxExtentBytes / kGroupBytes <= std::uint64_t{1} << 32);
  if (first + line_.groups_per_segment > kMaxExtentBytes / kGroupBytes) return {};
  return {.extent = entry->extent, .first_group = static_cast<std::uint32_t>(first)};
}

Status RemoteMap::check_directory_line(Bytes bytes) const {
  DirectoryLine line;
  if (bytes.size() < sizeof line) return torn();
  std::memcpy(&line, bytes.data(), sizeof line);
  if (line.checksum != line_checksum(bytes.first(sizeof line - 8), epoch_, kDirectoryLineOffset)) {
    return torn();
  }
  if (line.checksum != line_.checksum) {
    return fail(Code::kStale, "the server's directory has moved");
  }
  return {};
}

std::optional<RemoteRange> RemoteMap::root(std::size_t offset, std::size_t length) const {
  if (offset > root_.length || length > root_.length - offset) return std::nullopt;
  return RemoteRange{.address = root_.address + offset, .remote_key = root_.remote_key};
}

std::optional<RemoteRange> RemoteMap::hint(KeyHash hash) const {
  const std::uint64_t offset = hash.stripe() * sizeof(std::uint64_t);
  if (offset + sizeof(std::uint64_t) > hints_.length || hints_.address % 8 != 0 ||
      !fits(hints_.address, hints_.length)) {
    return std::nullopt;
  }
  return RemoteRange{.address = hints_.address + offset, .remote_key = hints_.remote_key};
}

namespace {
// Returns the value of a mark line if the line verifies.
std::optional<std::uint64_t> mark_in(Bytes bytes, std::uint64_t epoch, std::size_t offset) {
  MarkLine line;
  if (bytes.size() < sizeof line) return std::nullopt;
  std::memcpy(&line, bytes.data(), sizeof line);
  if (line.checksum != line_checksum(bytes.first(sizeof line - 8), epoch, offset)) {
    return std::nullopt;
  }
  return line.value;
}
}  // namespace

std::optional<std::uint64_t> RemoteMap::tick_ms(Bytes bytes) const {
  return mark_in(bytes, epoch_, kTickOffset);
}

bool RemoteMap::apply_marks(Bytes lines, std::size_t from) {
  const auto wal = mark_in(lines.subspan(kWalMarkOffset - from), epoch_, kWalMarkOffset);
  const auto sync = mark_in(lines.subspan(kSyncMarkOffset - from), epoch_, kSyncMarkOffset);
  learn_marks({wal.value_or(0)}, {sync.value_or(0)});
  return wal && sync;
}

std::optional<GroupLine> RemoteMap::group_line(Bytes bytes) const {
  GroupLine line;
  if (bytes.size() < sizeof line) return std::nullopt;
  std::memcpy(&line, bytes.data(), sizeof line);
  if (line.checksum != line_checksum(bytes.first(sizeof line - 8), epoch_, kGroupLineOffset)) {
    return std::nullopt;
  }
  return line;
}

std::optional<RemoteRange> RemoteMap::directory_entry(std::size_t index) const {
  if (index >= directory_.size()) return std::nullopt;
  return RemoteRange{.address = line_.address + index * 8, .remote_key = line_.remote_key};
}

}  // namespace rkv::client
