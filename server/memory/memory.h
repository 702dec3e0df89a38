// StoreMemory: all memory that clients READ: root region, directory, index extents, data extents.
// It starts small and grows by extents up to one limit, while clients READ.
//
//   MemoryOptions options{.memory_bytes = 1 << 30, .epoch = random_from_kernel(), ...};
//   auto memory = StoreMemory::create(options, [&](std::size_t bytes) {
//     return transport.allocate(bytes, rdma::Access::kRemoteRead);
//   });
//   ... auto extent = memory->add_extent(ExtentEntry::kData);
//
// Invariants:
//  MEMORY-1  An extent keeps its id, address, length and kind until the process ends. So a stale
//      pointer of a client leads to memory of this store, at worst to a record that does not
//      verify.
//  MEMORY-2  Every word that a client may READ is written by an 8-byte atomic store. The exception
//      is large values: the adapter or a read of the disk writes them before any slot leads to
//      them, and their digest proves them.
//  MEMORY-3  When create() returns, every group in use, directory entry and root line verifies.
//  MEMORY-4  An extent is in the table that clients READ before any slot or directory entry leads
//      to it.
//  MEMORY-5  Each network has a root region with the keys of that network; all other memory is
//      shared. The keys in a root change only while no client can READ that root: its device was
//      lost, and clients of the next device are admitted after rewrite_keys().
//
// Thread safety: const operations and segments() from any thread. set_tick and set_marks: one
// thread. set_group_line: one thread, the replicator. add_extent: one thread. rewrite_keys: any
// thread. add_root: before other threads start. Words of a group: the holder of the pair lock.
// Words of a record: its owner. A thread may use an extent once it has learned of it through a lock
// taken after add_extent.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/layout.h"
#include "common/mutex.h"
#include "rdma/transport/transport.h"
#include "rkv/result.h"
#include "server/memory/memory_sizes.h"
#include "server/memory/segments.h"

namespace rkv::server {

// Zeroed, page-aligned memory of at least this many bytes that clients may READ.
using RegionSource = std::function<Result<std::unique_ptr<rdma::Region>>(std::size_t bytes)>;
// Returns the key by which the clients of a network name a region that came from the source.
using KeyOf = std::function<std::uint32_t(const rdma::Region&)>;

class StoreMemory {
 public:
  struct Extent {
    std::uint32_t id = 0;
    std::uint32_t kind = ExtentEntry::kUnused;
    std::byte* base = nullptr;
    std::size_t length_bytes = 0;
    const rdma::Region* region = nullptr;
    std::uint32_t local_key() const { return region->local_key(); }  // for READs into it
    std::uint64_t units() const { return length_bytes / kUnitBytes; }
  };

  // Allocates one index extent and one data extent. kInvalidArgument: an option is out of range.
  // kOutOfMemory: less than kMinMemoryBytes, or the source has no more. Blocks while the kernel
  // provides the pages.
  static Result<std::unique_ptr<StoreMemory>> create(const MemoryOptions& options,
                                                     RegionSource source);
  StoreMemory(const StoreMemory&) = delete;
  StoreMemory& operator=(const StoreMemory&) = delete;

  std::uint64_t epoch() const { return epoch_; }
  std::uint64_t hash_seed() const { return hash_seed_; }
  KeyHash hash(Bytes key) const { return {key, hash_seed_}; }
  // Roots, which the server names to clients on connecting. The first root has the regions'
  // remote_key().
  const rdma::Region& root(std::size_t number = 0) const { return *roots_[number].region; }
  std::uint32_t root_key(std::size_t number) const { return roots_[number].key_of(root(number)); }
  // Adds a root for the clients of a network that names regions by other keys. Returns its number.
  Result<std::size_t> add_root(KeyOf key_of);
  // Writes the keys of a root again after the regions' keys changed (MEMORY-5).
  void rewrite_keys(std::size_t root);

  // ---- extents

  // Length of the next extent of this kind; 0: the limit is reached.
  std::size_t next_extent_bytes(ExtentEntry::Kind kind) const;
  // Adds an extent. Blocks while the kernel provides the pages. The caller adds the segments of an
  // index extent by Segments::add_extent. kOutOfMemory: the limit is reached, or the source has no
  // more.
  Result<Extent> add_extent(ExtentEntry::Kind kind);
  std::uint32_t extent_count() const { return extent_count_.load(std::memory_order_acquire); }
  const Extent& extent(std::uint32_t id) const { return extents_[id]; }
  std::size_t limit_bytes() const { return options_.memory_bytes; }
  bool is_scrubbed() const { return options_.scrub; }
  // The bytes allocated so far for everything that clients READ.
  std::size_t allocated_bytes() const { return allocated_.load(std::memory_order_relaxed); }
  // Extent sizes as long as the limit is not near.
  std::uint32_t index_extent_segments() const {
    return static_cast<std::uint32_t>(options_.index_extent_bytes / segment_bytes());
  }
  std::size_t data_extent_bytes() const { return options_.data_extent_bytes; }
  // Upper bound of the sum of all data extents.
  std::size_t max_data_bytes() const;

  // ---- groups and records

  Segments& segments() { return *segments_; }
  const Segments& segments() const { return *segments_; }
  std::uint32_t groups_per_segment() const { return options_.groups_per_segment; }
  std::uint32_t segments_in(const Extent& extent) const {
    return static_cast<std::uint32_t>(extent.length_bytes / segment_bytes());
  }
  // Slots of the segments in use.
  std::uint64_t slot_count() const {
    return std::uint64_t{segments_->in_use()} * groups_per_segment() * kSlotsPerGroup;
  }
  std::uint64_t max_slot_count() const {
    return std::uint64_t{segments_->max_segments()} * groups_per_segment() * kSlotsPerGroup;
  }
  GroupPlace home(KeyHash hash) const { return segments_->home(hash); }
  // Shared memory: read it under the pair lock; write single words by atomic stores.
  Group* group(GroupPlace place) const;
  // Start of a record of `units`. Shared memory, 32-byte aligned.
  std::byte* record(Location location, std::uint64_t units = 1) const;

  // ---- root lines

  // Writes the tick line: milliseconds since the server started.
  void set_tick(std::uint64_t tick_ms);
  std::uint64_t tick() const { return tick_ms_.load(std::memory_order_relaxed); }
  // Writes the durability watermarks. Neither ever falls.
  void set_marks(Version wal, Version sync);
  // Writes the group line into all roots: what clients of a primary may believe. `tick`: the clock
  // that answers carry, in nanoseconds; 0: the server must not be believed.
  // REQUIRES: it was read *before* the lease was found to last beyond tick + kTrustWindow
  // (T_AFTER_LOOK in tests/model). `replicated` never falls, and is not above the replicated mark.
  void set_group_line(Nanos tick, Version replicated);

 private:
  StoreMemory() = default;
  std::size_t segment_bytes() const {
    return std::size_t{options_.groups_per_segment} * kGroupBytes;
  }
  Status take_first_segments();
  void write_empty_segment(Segment segment, std::uint32_t prefix);
  struct Root {
    std::unique_ptr<rdma::Region> region;
    KeyOf key_of;
    std::uint64_t generation = 0;  // of the keys in it
  };
  Status make_root(KeyOf key_of);
  void write_root(const Root& root);
  void write_keys(Root& root) RKV_REQUIRES(keys_mutex_);
  void write_extent(const Root& root, const Extent& extent) RKV_REQUIRES(keys_mutex_);
  void write_identity(const Root& root) RKV_REQUIRES(keys_mutex_);
  template <class Line>
  static void write_line(const Root& root, std::size_t offset, Line line, std::uint64_t epoch);

  MemoryOptions options_;  // with every 0 replaced
  RegionSource source_;
  std::uint64_t epoch_ = 0;
  std::uint64_t hash_seed_ = 0;
  std::size_t index_reserve_ = 0;  // what data extents leave to the index
  Mutex keys_mutex_;               // for the lines with keys and the extent count in the roots
  std::vector<Root> roots_;
  std::unique_ptr<rdma::Region> directory_;
  std::unique_ptr<Segments> segments_;
  std::vector<std::unique_ptr<rdma::Region>> regions_;  // of the extents, by id
  std::unique_ptr<Extent[]> extents_;                   // by id, kMaxExtents
  std::atomic<std::uint32_t> extent_count_{0};
  std::atomic<std::size_t> allocated_{0};
  std::atomic<std::uint64_t> tick_ms_{0};
  std::size_t index_bytes_ = 0;
};

}  // namespace rkv::server
