// StoreMemory: all memory that clients READ - root region, directory, index extents, data extents -
// carved from one limit when the server starts, and the few words of it that belong to no key.
//
//   MemoryOptions options{.memory_bytes = 1 << 30, .epoch = random_from_kernel(), ...};
//   auto memory = StoreMemory::create(options, [&](std::size_t bytes) {
//     return transport.allocate(bytes, rdma::Access::kRemoteRead);
//   });
//
// Invariants:
//  M1  An extent keeps its id, address, length and kind until the process ends: a stale pointer of
//      a client leads to memory of ours, at worst to a record that does not verify.
//  M2  Every word that a client may READ is written by an 8-byte atomic store.
//  M3  When create() returns, every group, directory entry and root line verifies.
//
// Thread safety: const operations from any thread. set_tick and set_marks: one thread. Words of a
// group: the holder of its pair lock. Words of a record: its owner.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/layout.h"
#include "rdma/transport.h"
#include "rkv/result.h"

namespace rkv::server {

// Zeroed, page-aligned memory of at least this many bytes that clients may READ.
using RegionSource = std::function<Result<std::unique_ptr<rdma::Region>>(std::size_t bytes)>;

inline constexpr std::size_t kMinMemoryBytes = std::size_t{16} << 20;

struct MemoryOptions {
  std::size_t memory_bytes = 0;  // for everything that clients READ; at least kMinMemoryBytes
  std::uint64_t epoch = 0;       // random per server start, never 0
  std::uint64_t hash_seed = 0;   // random, so that nobody can choose keys that collide
  // More groups make a segment cheaper to find and dearer to split. Power of two, 2 to 4096.
  std::uint32_t groups_per_segment = 64;
  // 0 = as many as suit the memory (index_segments_for); else a power of two.
  std::uint32_t index_segments = 0;
  std::size_t max_extent_bytes = kMaxExtentBytes;  // smaller in tests of many extents
};

// The largest power of two whose segments fit in a sixth of the memory. It is always the power of
// two nearest to an eighth: it lies in (1/12, 1/6], and its half at most at 1/12, which is no
// nearer. An eighth makes index and data full together at 56 bytes of record a key.
std::uint32_t index_segments_for(std::size_t memory_bytes, std::uint32_t groups_per_segment);

class StoreMemory {
 public:
  struct Extent {
    std::uint32_t id = 0;
    std::byte* base = nullptr;
    std::size_t length_bytes = 0;
    std::uint64_t units() const { return length_bytes / kUnitBytes; }
  };

  // kInvalidArgument: an option is out of range. kOutOfMemory: less than kMinMemoryBytes, or the
  // source has no more. Blocks while the pages are made.
  static Result<std::unique_ptr<StoreMemory>> create(const MemoryOptions& options,
                                                     const RegionSource& source);
  StoreMemory(const StoreMemory&) = delete;
  StoreMemory& operator=(const StoreMemory&) = delete;

  std::uint64_t epoch() const { return epoch_; }
  std::uint64_t hash_seed() const { return hash_seed_; }
  KeyHash hash(Bytes key) const { return {key, hash_seed_}; }
  // What clients are told on connecting.
  const rdma::Region& root() const { return *root_; }

  std::uint32_t group_count() const { return segment_count_ * groups_per_segment_; }
  std::uint64_t slot_count() const { return std::uint64_t{group_count()} * kSlotsPerGroup; }
  GroupPlace home(KeyHash hash) const;
  // Numbers all groups of the store 0..group_count()-1; the two of a pair are 2p and 2p+1.
  std::uint32_t group_ordinal(GroupPlace place) const {
    return place.extent * groups_per_extent_ + place.number;
  }
  // Shared memory: read it under the pair lock; write single words by atomic stores.
  Group* group(GroupPlace place) const;

  std::span<const Extent> data_extents() const {
    return std::span(extents_).subspan(index_extent_count_);
  }
  // Where a record of `units` starts. Shared memory, 32-byte aligned.
  std::byte* record(Location location, std::uint64_t units = 1) const;

  // The tick line: milliseconds since the server started.
  void set_tick(std::uint64_t tick_ms);
  // The durability watermarks. Each only rises.
  void set_marks(Version wal, Version sync);

 private:
  StoreMemory() = default;
  Status add_extents(std::size_t total_bytes, std::size_t each_bytes, ExtentEntry::Kind kind,
                     const RegionSource& source);
  void write_groups();
  void write_directory();
  void write_root();
  template <class Line>
  void write_line(std::size_t offset, Line line);

  std::uint64_t epoch_ = 0;
  std::uint64_t hash_seed_ = 0;
  std::uint32_t segment_count_ = 0;
  std::uint32_t groups_per_segment_ = 0;
  std::uint32_t groups_per_extent_ = 0;
  std::uint32_t depth_ = 0;
  std::uint32_t index_extent_count_ = 0;
  std::unique_ptr<rdma::Region> root_;
  std::unique_ptr<rdma::Region> directory_;
  std::vector<std::unique_ptr<rdma::Region>> regions_;  // of the extents, by id
  std::vector<Extent> extents_;                         // by id: index first, then data
};

}  // namespace rkv::server
