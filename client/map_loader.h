// Reads the server's root region and directory into a RemoteMap.
//
// Blocking, over a link with nothing in flight. Errors: those of Link::read, and what RemoteMap
// says about the bytes.
//
// Invariants:
//  Q1  The server rewrites lines in place, body first, checksum last; the operating system may stop
//      its thread in between for as long as it likes. A line that does not verify is READ again,
//      after a pause that grows, until the patience of the caller has passed. Then the error is
//      kBusy, never kCorrupt: whether another way is left (a request) is the caller's to know.
//
// Thread safety: none.
#pragma once

#include "client/link.h"
#include "client/remote_map.h"

namespace rkv::client {

class MapLoader {
 public:
  MapLoader(Link& link, const Clock& clock, Arena& arena, RemoteMap& map)
      : link_(&link), clock_(&clock), arena_(&arena), map_(&map) {}

  // Everything, after map.begin(), with patience until the deadline. kTimeout: a line did not
  // verify until then.
  Status load(const Deadline& deadline);
  // Extents that have come since.
  Status refresh_extents(const Deadline& deadline, Nanos patience_end);
  // Directory line and directory.
  Status refresh_directory(const Deadline& deadline, Nanos patience_end);
  // Both mark lines: one READ, repeated with patience until the deadline. kTimeout as above.
  Status refresh_marks(const Deadline& deadline);
  // One READ of them. kBusy: a line did not verify; the other has been learnt.
  Status look_at_marks(const Deadline& deadline);
  std::uint64_t reads() const { return reads_; }

 private:
  // Another READ sees a line whole that was being written: writing takes less than a READ. More of
  // them without a pause would keep a processor from the thread that was stopped.
  static constexpr int kTriesAtOnce = 3;
  static constexpr Nanos kFirstPause = kNanosPerMs / 20;
  static constexpr Nanos kLongestPause = 2 * kNanosPerMs;

  // READs `length` bytes (at most the staging area) and returns them.
  Result<Bytes> read(const std::optional<RemoteRange>& from, std::size_t length,
                     const Deadline& deadline);
  // Repeats `step` while it says kBusy, until `patience_end` (Q1).
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
