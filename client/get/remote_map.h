// A client's view of the server's memory in one epoch: the root region, the directory line, a copy
// of the directory, the extent table. All of it came over the network.
//
// Invariants:
//  RMAP-1  An address is handed out only for bytes inside a verified extent, or inside the root
//      window of the accept. An extent is verified if its table entry had a valid checksum of this
//      epoch.
//  RMAP-2  The directory copy is a hint (layout.h, LAYOUT-1). Any of its bits may be stale or wrong
//      without harm: its entries are bounds-checked here, and the group found there proves itself.
//  RMAP-3  Extents are never moved or reused within an epoch. So a verified entry stays true, and
//      only missing entries are read again. A server that contradicts a verified entry is refused,
//      since one GET may look up the same extent several times.
//
// Thread safety: none. Lookups do not allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/get/watermarks.h"
#include "common/layout.h"
#include "common/wire.h"

namespace rkv::client {

// A place in the server's memory that a READ may name.
struct RemoteRange {
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
};

// Result of a lookup: found; the extent is not in our table (refresh the table, then try again); or
// the place cannot exist with any table.
struct Lookup {
  enum class Kind : std::uint8_t { kOk, kUnknownExtent, kOutOfBounds };
  Kind kind = Kind::kOutOfBounds;
  RemoteRange range;
};

class RemoteMap {
 public:
  // Largest directory that a client copies: 2^24 entries, 128 MiB.
  static constexpr std::uint32_t kMaxDirectoryDepth = 24;

  // Forgets everything and starts an epoch. `root` and `hints` are the windows of the accept;
  // `client` signs this client's pins.
  void begin(std::uint64_t epoch, const RemoteWindow& root, const RemoteWindow& hints = {},
             std::uint32_t client = 0);
  void clear() { *this = RemoteMap(); }
  // The window of a later accept in the same epoch: another role may have been granted another.
  void set_hints(const RemoteWindow& hints) { hints_ = hints; }
  // Returns true if root page and directory are loaded, so that keys can be looked up.
  bool ready() const { return ready_; }
  std::uint64_t epoch() const { return epoch_; }
  // Returns true if the map belongs to this accept. A server that lost its device registers its
  // memory under other keys, in the same epoch.
  bool is_of(std::uint64_t epoch, const RemoteWindow& root) const {
    return ready() && epoch_ == epoch && root_.address == root.address &&
           root_.remote_key == root.remote_key;
  }

  // ---- loading. Each function takes bytes as READ and verifies them. kBusy: the server's thread
  // was between two words of a line, or the bytes are damaged: READ again. kCorrupt: a stopped
  // server thread does not explain the bytes.

  // Applies the first kRootPageBytes of the root region: the number of extents in use.
  // kVersionMismatch: another layout.
  Status apply_identity(Bytes root_page);
  // Applies the same page: the place of the directory. Empties the directory copy; the caller loads
  // it again. kUnsupported: a directory or hash that this client cannot use.
  Status apply_directory_line(Bytes root_page);
  // Applies entries of the extent table from number `first`. Entries that do not verify stay
  // unknown. kBusy: an entry in use did not verify.
  Status apply_extents(std::uint32_t first, Bytes entries);
  // Applies words of the directory from entry `first`. They are hints, so nothing is verified.
  void apply_directory(std::size_t first, Bytes words);
  // Applies one entry that was read again because its segment has been split. The entry stands for
  // all entries of its segment's present prefix, so that they need not be read again one by one.
  void apply_directory_entry(std::size_t index, std::uint64_t word);
  void finish() { ready_ = true; }
  std::uint32_t extent_count() const { return extent_count_; }
  // Whether the server wants to be told which keys are READ.
  bool wants_reports() const { return wants_reports_; }
  std::size_t directory_entries() const { return directory_.size(); }

  // Checks a directory line that was read again. kBusy: torn. kStale: the directory copied here is
  // not the server's; load the map again.
  Status check_directory_line(Bytes line) const;

  // ---- watermarks

  const Watermarks& marks() const { return marks_; }
  void learn_marks(Version wal, Version sync) { marks_.learn(wal, sync); }
  // Applies bytes of the root region from offset `from` on, which contain both mark lines. Ignores
  // a line that does not verify; returns false if there was one.
  bool apply_marks(Bytes lines, std::size_t from);

  // The group line, if the bytes of it verify.
  std::optional<GroupLine> group_line(Bytes line) const;

  // ---- lookups

  KeyHash hash(Bytes key) const { return {key, line_.hash_seed}; }
  std::size_t directory_index(KeyHash hash) const {
    return hash.directory_index(line_.global_depth);
  }
  // The home group that the directory copy names; empty if the entry is not valid.
  std::optional<GroupPlace> home(KeyHash hash) const {
    const Segment& segment = directory_[directory_index(hash)];
    if (segment.extent == Segment::kNone) return std::nullopt;
    const std::uint32_t group = hash.group_index(line_.groups_per_segment);
    return GroupPlace{.extent = segment.extent, .number = segment.first_group + group};
  }
  Lookup group(GroupPlace place) const {
    return find(place.extent, ExtentEntry::kIndex, place.offset(), kGroupBytes);
  }
  // The group and its neighbour, the even number first.
  Lookup group_pair(GroupPlace place) const {
    const GroupPlace even{place.extent, place.number & ~1U};
    return find(place.extent, ExtentEntry::kIndex, even.offset(), 2 * kGroupBytes);
  }
  Lookup record(Location location, std::size_t length) const {
    return find(location.extent(), ExtentEntry::kData, location.offset(), length);
  }
  // A range of the root region, checked against the window.
  std::optional<RemoteRange> root(std::size_t offset, std::size_t length) const;
  std::optional<RemoteRange> directory_entry(std::size_t index) const;
  // The hint word of a key's stripe; empty if the server grants no hint words.
  std::optional<RemoteRange> hint(KeyHash hash) const;
  std::uint32_t client() const { return client_; }
  // The time in the tick line, if the line verifies.
  std::optional<std::uint64_t> tick_ms(Bytes line) const;

 private:
  struct Extent {
    std::uint64_t address = 0;
    std::uint64_t length_bytes = 0;  // 0 = unknown
    std::uint32_t remote_key = 0;
    std::uint32_t kind = ExtentEntry::kUnused;
    bool operator==(const Extent&) const = default;
  };
  // A decoded directory entry. It is checked once when it is copied, not by every GET.
  struct Segment {
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    std::uint32_t extent = kNone;
    std::uint32_t first_group = 0;  // all group numbers of the segment are below 2^32
  };
  Segment segment_of(std::uint64_t directory_word) const;
  Lookup find(std::uint32_t extent, std::uint32_t kind, std::uint64_t offset,
              std::uint64_t length) const {
    if (extent >= kMaxExtents) return {};
    if (extent >= extents_.size() || extents_[extent].length_bytes == 0) {
      return {.kind = Lookup::Kind::kUnknownExtent, .range = {}};
    }
    const Extent& known = extents_[extent];
    // Offsets have at most 40 bits, so this sum cannot wrap.
    if (known.kind != kind || offset + length > known.length_bytes) return {};
    return {.kind = Lookup::Kind::kOk,
            .range = {.address = known.address + offset, .remote_key = known.remote_key}};
  }

  std::uint64_t epoch_ = 0;
  RemoteWindow root_;
  RemoteWindow hints_;
  std::uint32_t client_ = 0;
  DirectoryLine line_;
  Watermarks marks_;
  std::uint32_t extent_count_ = 0;
  bool wants_reports_ = false;
  bool ready_ = false;
  std::vector<Extent> extents_;
  std::vector<Segment> directory_;
};

}  // namespace rkv::client
