// Reads the server's root region and directory into a RemoteMap.
//
// Blocking, over a link with nothing in flight. READs that land torn are repeated, kTornRetries
// times. Errors: those of Link::read, and what RemoteMap says about the bytes.
#pragma once

#include "client/link.h"
#include "client/remote_map.h"

namespace rkv::client {

class MapLoader {
 public:
  static constexpr int kTornRetries = 16;

  MapLoader(Link& link, Arena& arena, RemoteMap& map) : link_(&link), arena_(&arena), map_(&map) {}

  // Everything, after map.begin().
  Status load(const Deadline& deadline);
  // Extents that have come since.
  Status refresh_extents(const Deadline& deadline);
  // Directory line and directory.
  Status refresh_directory(const Deadline& deadline);
  // Both mark lines: one READ.
  Status refresh_marks(const Deadline& deadline);
  std::uint64_t reads() const { return reads_; }

 private:
  // READs `length` bytes (at most the staging area) and returns them.
  Result<Bytes> read(const std::optional<RemoteRange>& from, std::size_t length,
                     const Deadline& deadline);
  // Repeats `step` while it says kCorrupt.
  template <class Step>
  Status until_whole(Step step);
  Status read_extents(const Deadline& deadline);
  Status read_directory(const Deadline& deadline);

  Link* link_;
  Arena* arena_;
  RemoteMap* map_;
  std::uint64_t reads_ = 0;
};

}  // namespace rkv::client
