// What a client knows of the server's memory in one epoch: the root region, the directory line, a
// copy of the directory, the extent table. All of it came over the network.
//
// Invariants:
//  M1  An address is handed out only for bytes that lie inside an extent whose table entry carried
//      a valid checksum of this epoch, or inside the root window of the accept.
//  M2  The directory copy is a hint (layout.h, L1). It may be stale or wrong in any bit without
//      harm: what it leads to is bounds-checked here and proved by the group found there.
//  M3  Extents are never moved or given another purpose within an epoch, so that an entry once
//      verified stays true and only missing ones are ever asked for again. A server that says
//      otherwise is refused: what was looked up may be looked up again within one GET.
//
// Thread safety: none. Lookups do not allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/marks.h"
#include "common/layout.h"
#include "common/wire.h"

namespace rkv::client {

// Memory of the server that a READ may name.
struct RemoteRange {
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
};

// Where a lookup ended: found; the extent is not in our table (refresh it, then try again); or the
// place cannot exist, whatever the table says.
struct Lookup {
  enum class Kind : std::uint8_t { kOk, kUnknownExtent, kOutOfBounds };
  Kind kind = Kind::kOutOfBounds;
  RemoteRange range;
};

class RemoteMap {
 public:
  // A directory of 2^24 entries (128 MiB) is the largest that a client copies.
  static constexpr std::uint32_t kMaxDirectoryDepth = 24;

  // Forgets everything and starts an epoch. `root` and `hints` are the accept's windows, `client`
  // is what this client's pins are signed with.
  void begin(std::uint64_t epoch, const RemoteWindow& root, const RemoteWindow& hints = {},
             std::uint32_t client = 0);
  void clear() { *this = RemoteMap(); }
  // Whether root page and directory have been loaded, so that keys can be looked up.
  bool ready() const { return ready_; }
  std::uint64_t epoch() const { return epoch_; }
  // Whether it is that of this accept. A server whose device was lost names its memory by other
  // keys, in the same epoch.
  bool is_of(std::uint64_t epoch, const RemoteWindow& root) const {
    return ready() && epoch_ == epoch && root_.address == root.address &&
           root_.remote_key == root.remote_key;
  }

  // ---- loading. Each takes bytes as READ and verifies them. kBusy: the server's thread was
  // seen between two words of a line, or the bytes are damaged: READ again. kCorrupt: no thread
  // that was stopped explains it.

  // From the first kRootPageBytes of the root region: how many extents are in use.
  // kVersionMismatch: another layout.
  Status apply_identity(Bytes root_page);
  // From the same page: where the directory is. Empties the copy, which is to be loaded again.
  // kUnsupported: a directory or hash that this client cannot use.
  Status apply_directory_line(Bytes root_page);
  // Entries of the extent table from number `first`. Entries that do not verify stay unknown;
  // kBusy when there was one among those in use.
  Status apply_extents(std::uint32_t first, Bytes entries);
  // Words of the directory from entry `first`; hints, so nothing to verify.
  void apply_directory(std::size_t first, Bytes words);
  // One entry, read again because its segment has been split. It stands for all entries of the
  // prefix that its segment has now, so that they need not be read again one by one.
  void apply_directory_entry(std::size_t index, std::uint64_t word);
  void finish() { ready_ = true; }
  std::uint32_t extent_count() const { return extent_count_; }
  std::size_t directory_entries() const { return directory_.size(); }

  // A directory line read again. kBusy: torn; kStale: the directory is not the one copied here,
  // load the map again.
  Status check_directory_line(Bytes line) const;

  // ---- watermarks

  const Marks& marks() const { return marks_; }
  void learn_marks(Version wal, Version sync) { marks_.learn(wal, sync); }
  // From bytes of the root region from offset `from` on that hold both mark lines. A line that does
  // not verify says nothing, and the answer is false.
  bool apply_marks(Bytes lines, std::size_t from);

  // ---- lookups

  KeyHash hash(Bytes key) const { return {key, line_.hash_seed}; }
  std::size_t directory_index(KeyHash hash) const {
    return hash.directory_index(line_.global_depth);
  }
  // The home group that the directory copy names; nothing when its entry is no entry.
  std::optional<GroupPlace> home(KeyHash hash) const {
    const Segment& segment = directory_[directory_index(hash)];
    if (segment.extent == Segment::kNone) return std::nullopt;
    const std::uint32_t group = hash.group_index(line_.groups_per_segment);
    return GroupPlace{.extent = segment.extent, .number = segment.first_group + group};
  }
  Lookup group(GroupPlace place) const {
    return find(place.extent, ExtentEntry::kIndex, place.offset(), kGroupBytes);
  }
  // With its neighbour, the one of even number first.
  Lookup group_pair(GroupPlace place) const {
    const GroupPlace even{place.extent, place.number & ~1U};
    return find(place.extent, ExtentEntry::kIndex, even.offset(), 2 * kGroupBytes);
  }
  Lookup record(Location location, std::size_t length) const {
    return find(location.extent(), ExtentEntry::kData, location.offset(), length);
  }
  // Range of bytes of the root region, checked against the window.
  std::optional<RemoteRange> root(std::size_t offset, std::size_t length) const;
  std::optional<RemoteRange> directory_entry(std::size_t index) const;
  // The hint word of a key's stripe; nothing when the server grants none.
  std::optional<RemoteRange> hint(KeyHash hash) const;
  std::uint32_t client() const { return client_; }
  // What the tick line says, if it verifies.
  std::optional<std::uint64_t> tick_ms(Bytes line) const;

 private:
  struct Extent {
    std::uint64_t address = 0;
    std::uint64_t length_bytes = 0;  // 0 = unknown
    std::uint32_t remote_key = 0;
    std::uint32_t kind = ExtentEntry::kUnused;
    bool operator==(const Extent&) const = default;
  };
  // What a directory entry says, checked once when it is copied instead of by every GET.
  struct Segment {
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    std::uint32_t extent = kNone;
    std::uint32_t first_group = 0;  // and all the segment's groups have a number below 2^32
  };
  Segment segment_of(std::uint64_t directory_word) const;
  Lookup find(std::uint32_t extent, std::uint32_t kind, std::uint64_t offset,
              std::uint64_t length) const {
    if (extent >= kMaxExtents) return {};
    if (extent >= extents_.size() || extents_[extent].length_bytes == 0) {
      return {.kind = Lookup::Kind::kUnknownExtent, .range = {}};
    }
    const Extent& known = extents_[extent];
    // Offsets have at most 40 bits, so that no sum here can wrap.
    if (known.kind != kind || offset + length > known.length_bytes) return {};
    return {.kind = Lookup::Kind::kOk,
            .range = {.address = known.address + offset, .remote_key = known.remote_key}};
  }

  std::uint64_t epoch_ = 0;
  RemoteWindow root_;
  RemoteWindow hints_;
  std::uint32_t client_ = 0;
  DirectoryLine line_;
  Marks marks_;
  std::uint32_t extent_count_ = 0;
  bool ready_ = false;
  std::vector<Extent> extents_;
  std::vector<Segment> directory_;
};

}  // namespace rkv::client
