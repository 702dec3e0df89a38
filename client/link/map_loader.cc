#include "client/link/map_loader.h"

#include <algorithm>

namespace rkv::client {

static_assert(Arena::kStagingBytes >= kRootPageBytes);

namespace {
// Converts kBusy to kTimeout, for callers that cannot ask the server instead.
Status out_of_patience(const Status& status) {
  if (status || status.error().code != Code::kBusy) return status;
  return fail(Code::kTimeout,
              "a line of the server's memory did not verify within the time: its thread is stopped "
              "in the middle of writing it, or the memory is damaged");
}
}  // namespace

Result<Bytes> MapLoader::read(const std::optional<RemoteRange>& from, std::size_t length,
                              const Deadline& deadline) {
  if (!from) return fail(Code::kCorrupt, "the server's map names memory that it did not grant");
  // READs that complete within the call do not check the deadline.
  if (deadline.passed()) return fail(Code::kTimeout, "the server's map was not read in time");
  const ReadRequest request{.from = *from, .to = arena_->staging().first(length)};
  ++reads_;
  RKV_RETURN_IF_ERROR(link_->read({&request, 1}, deadline));
  return Bytes(request.to);
}

template <class Step>
Status MapLoader::until_whole(Nanos patience_end, Step step) {
  Nanos pause = kFirstPause;
  for (int tries = 1;; ++tries) {
    const Status status = step();
    if (status || status.error().code != Code::kBusy) return status;
    if (tries < kTriesAtOnce) continue;
    link_->sleep_until(std::min(patience_end, clock_->now() + pause));
    if (clock_->now() >= patience_end) return status;
    pause = std::min(2 * pause, kLongestPause);
  }
}

Status MapLoader::load(const Deadline& deadline, Nanos patience_end) {
  RKV_RETURN_IF_ERROR(out_of_patience(refresh_extents(deadline, patience_end)));
  RKV_RETURN_IF_ERROR(out_of_patience(refresh_directory(deadline, patience_end)));
  map_->finish();
  return {};
}

Status MapLoader::refresh_extents(const Deadline& deadline, Nanos patience_end) {
  return until_whole(patience_end, [&]() -> Status {
    RKV_ASSIGN_OR_RETURN(const Bytes page,
                         read(map_->root(0, kRootPageBytes), kRootPageBytes, deadline));
    RKV_RETURN_IF_ERROR(map_->apply_identity(page));
    return read_extents(deadline);
  });
}

Status MapLoader::read_extents(const Deadline& deadline) {
  constexpr std::uint32_t kChunk = Arena::kStagingBytes / kExtentEntryBytes;
  Status whole;
  for (std::uint32_t first = 0; first < map_->extent_count(); first += kChunk) {
    const std::uint32_t count = std::min(kChunk, map_->extent_count() - first);
    const std::size_t offset = kExtentTableOffset + std::size_t{first} * kExtentEntryBytes;
    const std::size_t length = std::size_t{count} * kExtentEntryBytes;
    RKV_ASSIGN_OR_RETURN(const Bytes entries, read(map_->root(offset, length), length, deadline));
    if (Status applied = map_->apply_extents(first, entries); !applied) whole = applied;
  }
  return whole;
}

Status MapLoader::refresh_directory(const Deadline& deadline, Nanos patience_end) {
  RKV_RETURN_IF_ERROR(until_whole(patience_end, [&]() -> Status {
    RKV_ASSIGN_OR_RETURN(const Bytes page,
                         read(map_->root(0, kRootPageBytes), kRootPageBytes, deadline));
    return map_->apply_directory_line(page);
  }));
  return read_directory(deadline);
}

Status MapLoader::refresh_marks(const Deadline& deadline) {
  return out_of_patience(until_whole(deadline.at(), [&] { return look_at_marks(deadline); }));
}

Status MapLoader::look_at_marks(const Deadline& deadline) {
  constexpr std::size_t kLength = kSyncMarkOffset + kRootLineBytes - kWalMarkOffset;
  RKV_ASSIGN_OR_RETURN(const Bytes lines,
                       read(map_->root(kWalMarkOffset, kLength), kLength, deadline));
  if (map_->apply_marks(lines, kWalMarkOffset)) return {};
  return fail(Code::kBusy, "the server's mark lines do not verify");
}

Result<GroupLine> MapLoader::look_at_group_line(const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(const Bytes bytes, read(map_->root(kGroupLineOffset, kRootLineBytes),
                                               kRootLineBytes, deadline));
  if (const auto line = map_->group_line(bytes)) return *line;
  return fail(Code::kBusy, "the server's group line does not verify");
}

Status MapLoader::read_directory(const Deadline& deadline) {
  constexpr std::size_t kChunk = Arena::kStagingBytes / 8;
  const std::size_t entries = map_->directory_entries();
  for (std::size_t first = 0; first < entries; first += kChunk) {
    const std::size_t length = std::min(kChunk, entries - first) * 8;
    RKV_ASSIGN_OR_RETURN(const Bytes words, read(map_->directory_entry(first), length, deadline));
    map_->apply_directory(first, words);
  }
  return {};
}

}  // namespace rkv::client
