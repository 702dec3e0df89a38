// StoreMemory: all memory that clients READ - root region, directory, index extents, data extents.
// It starts small and grows by extents up to one limit, while clients READ.
//
//   MemoryOptions options{.memory_bytes = 1 << 30, .epoch = random_from_kernel(), ...};
//   auto memory = StoreMemory::create(options, [&](std::size_t bytes) {
//     return transport.allocate(bytes, rdma::Access::kRemoteRead);
//   });
//   ... auto extent = memory->add_extent(ExtentEntry::kData);
//
// Invariants:
//  M1  An extent keeps its id, address, length and kind until the process ends: a stale pointer of
//      a client leads to memory of ours, at worst to a record that does not verify.
//  M2  Every word that a client may READ is written by an 8-byte atomic store; but large values,
//      which the adapter or a read of the disk writes before anything leads to them. Their digest
//      proves them.
//  M3  When create() returns, every group in use, directory entry and root line verifies.
//  M4  An extent is in the table that clients READ before anything leads to it.
//  M5  Each network has a root region of its own, with its own keys; all else is shared. The keys
//      in a root change only while no client can READ that root: its device was lost, and a client
//      of the next one is let in after rewrite_keys().
//
// Thread safety: const operations and segments() from any thread. set_tick and set_marks: one
// thread. add_extent: one thread. rewrite_keys: any thread. add_root: before there are threads.
// Words of a group: the holder of its pair lock. Words of a record: its owner. An extent may be
// used by those who learn of it after add_extent, through a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "common/layout.h"
#include "rdma/transport.h"
#include "rkv/result.h"
#include "server/segments.h"

namespace rkv::server {

// Zeroed, page-aligned memory of at least this many bytes that clients may READ.
using RegionSource = std::function<Result<std::unique_ptr<rdma::Region>>(std::size_t bytes)>;
// By which key the clients of a network name a region that came from the source.
using KeyOf = std::function<std::uint32_t(const rdma::Region&)>;

inline constexpr std::size_t kMinMemoryBytes = std::size_t{16} << 20;

struct MemoryOptions {
  std::size_t memory_bytes = 0;  // limit for everything that clients READ; >= kMinMemoryBytes
  std::uint64_t epoch = 0;       // random per server start, never 0
  // Random, so that keys collide by chance alone, unless a client chooses them by the seed, which
  // it can READ: then I8 of index.h bounds what that costs.
  std::uint64_t hash_seed = 0;
  // More groups make a segment cheaper to find and dearer to split. Power of two, 2 to 4096.
  std::uint32_t groups_per_segment = 64;
  // Powers of two; 0 = as suits the memory. Equal ones: the index does not grow.
  std::uint32_t initial_segments = 0;
  std::uint32_t max_segments = 0;
  // 0 = as suits the memory. Smaller in tests of many extents.
  std::size_t index_extent_bytes = 0;
  std::size_t data_extent_bytes = 0;
  // Where records may be on disk alone, the index gets more keys than memory holds: data extents
  // leave it this many times what it has.
  std::uint32_t index_growth = 0;
};

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

  // One index extent and one data extent. kInvalidArgument: an option is out of range.
  // kOutOfMemory: less than kMinMemoryBytes, or the source has no more. Blocks while the pages are
  // made.
  static Result<std::unique_ptr<StoreMemory>> create(const MemoryOptions& options,
                                                     RegionSource source);
  StoreMemory(const StoreMemory&) = delete;
  StoreMemory& operator=(const StoreMemory&) = delete;

  std::uint64_t epoch() const { return epoch_; }
  std::uint64_t hash_seed() const { return hash_seed_; }
  KeyHash hash(Bytes key) const { return {key, hash_seed_}; }
  // What clients are told on connecting. The first root is that of the regions' remote_key().
  const rdma::Region& root(std::size_t number = 0) const { return *roots_[number].region; }
  std::uint32_t root_key(std::size_t number) const { return roots_[number].key_of(root(number)); }
  // One more, for the clients of a network that names regions by other keys: its number.
  Result<std::size_t> add_root(KeyOf key_of);
  // The regions have other keys now (M5).
  void rewrite_keys(std::size_t root);

  // ---- extents

  // How long the next extent of this kind will be; 0: the limit is reached.
  std::size_t next_extent_bytes(ExtentEntry::Kind kind) const;
  // Blocks while the pages are made. An index extent's segments are not yet handed out: see
  // Segments::add_extent. kOutOfMemory: the limit is reached, or the source has no more.
  Result<Extent> add_extent(ExtentEntry::Kind kind);
  std::uint32_t extent_count() const { return extent_count_.load(std::memory_order_acquire); }
  const Extent& extent(std::uint32_t id) const { return extents_[id]; }
  std::size_t limit_bytes() const { return options_.memory_bytes; }
  // Of everything that clients READ, made so far.
  std::size_t allocated_bytes() const { return allocated_.load(std::memory_order_relaxed); }
  // As long as extents are until the limit comes near.
  std::uint32_t index_extent_segments() const {
    return static_cast<std::uint32_t>(options_.index_extent_bytes / segment_bytes());
  }
  std::size_t data_extent_bytes() const { return options_.data_extent_bytes; }
  // How much the data extents may come to at most.
  std::size_t max_data_bytes() const;

  // ---- groups and records

  Segments& segments() { return *segments_; }
  const Segments& segments() const { return *segments_; }
  std::uint32_t groups_per_segment() const { return options_.groups_per_segment; }
  std::uint32_t segments_in(const Extent& extent) const {
    return static_cast<std::uint32_t>(extent.length_bytes / segment_bytes());
  }
  // Of the segments in use.
  std::uint64_t slot_count() const {
    return std::uint64_t{segments_->in_use()} * groups_per_segment() * kSlotsPerGroup;
  }
  std::uint64_t max_slot_count() const {
    return std::uint64_t{segments_->max_segments()} * groups_per_segment() * kSlotsPerGroup;
  }
  GroupPlace home(KeyHash hash) const { return segments_->home(hash); }
  // Shared memory: read it under the pair lock; write single words by atomic stores.
  Group* group(GroupPlace place) const;
  // Where a record of `units` starts. Shared memory, 32-byte aligned.
  std::byte* record(Location location, std::uint64_t units = 1) const;

  // ---- root lines

  // The tick line: milliseconds since the server started.
  void set_tick(std::uint64_t tick_ms);
  std::uint64_t tick() const { return tick_ms_.load(std::memory_order_relaxed); }
  // The durability watermarks. Each only rises.
  void set_marks(Version wal, Version sync);

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
    std::uint64_t generation = 0;  // of its keys
  };
  Status make_root(KeyOf key_of);
  void write_root(const Root& root);
  void write_keys(Root& root);
  void write_extent(const Root& root, const Extent& extent);
  void write_identity(const Root& root);
  template <class Line>
  static void write_line(const Root& root, std::size_t offset, Line line, std::uint64_t epoch);

  MemoryOptions options_;  // with every 0 replaced
  RegionSource source_;
  std::uint64_t epoch_ = 0;
  std::uint64_t hash_seed_ = 0;
  std::size_t index_reserve_ = 0;  // what data extents leave to the index
  std::mutex keys_mutex_;          // for the lines with keys, and with the number of extents
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
