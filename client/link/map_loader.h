// Reads the server's root region and directory into a RemoteMap.
//
// Calls block, over a link with nothing in flight. Errors: those of Link::read(), and those of
// RemoteMap for the bytes.
//
// Invariants:
//  MAPL-1  The server rewrites lines in place, body first, checksum last. The operating system may
//      stop the server's thread in between for any length of time. A line that does not verify is
//      READ again, after a growing pause, until the caller's patience has passed. Then the error is
//      kBusy, never kCorrupt: the caller knows whether it can send a request instead.
//
// Thread safety: none.
#pragma once

#include "client/get/remote_map.h"
#include "client/link/link.h"

namespace rkv::client {

class MapLoader {
 public:
  MapLoader(Link& link, const Clock& clock, Arena& arena, RemoteMap& map)
      : link_(&link), clock_(&clock), arena_(&arena), map_(&map) {}

  // Loads everything after map.begin(). kTimeout: a line did not verify within the patience.
  Status load(const Deadline& deadline, Nanos patience_end);
  // Reads the new extents.
  Status refresh_extents(const Deadline& deadline, Nanos patience_end);
  // Reads the directory line and the directory.
  Status refresh_directory(const Deadline& deadline, Nanos patience_end);
  // READs both mark lines in one READ, repeated with patience until the deadline. kTimeout as
  // above.
  Status refresh_marks(const Deadline& deadline);
  // READs the mark lines once. kBusy: a line did not verify; the other line has been applied.
  Status look_at_marks(const Deadline& deadline);
  // READs the group line once. kBusy: it did not verify.
  Result<GroupLine> look_at_group_line(const Deadline& deadline);
  std::uint64_t reads() const { return reads_; }

 private:
  // A line that was being written is usually whole in the next READ, since writing takes less time
  // than a READ. More READs without a pause could keep the processor from a thread that was
  // stopped.
  static constexpr int kTriesAtOnce = 3;
  static constexpr Nanos kFirstPause = kNanosPerMs / 20;
  static constexpr Nanos kLongestPause = 2 * kNanosPerMs;

  // READs `length` bytes (at most the staging area) and returns them.
  Result<Bytes> read(const std::optional<RemoteRange>& from, std::size_t length,
                     const Deadline& deadline);
  // Repeats `step` while it returns kBusy, until `patience_end` (MAPL-1).
  template <class Step>
  Status until_whole(Nanos patience_end, Step step);
  Status read_extents(const Deadline& deadline);
  Status read_directory(const Deadline& deadline);

  Link* link_;
  const Clock* clock_;
  Arena* arena_;
  RemoteMap* map_;
  std::uint64_t reads_ = 0;
};

}  // namespace rkv::client
