#include "server/memory/memory.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/check.h"
#include "server/memory/memory_sizes.h"

namespace rkv::server {

Result<std::unique_ptr<StoreMemory>> StoreMemory::create(const MemoryOptions& options,
                                                         RegionSource source) {
  RKV_RETURN_IF_ERROR(check_memory_options(options));
  std::unique_ptr<StoreMemory> memory(new StoreMemory);
  StoreMemory& m = *memory;
  m.options_ = with_sizes(options);
  m.source_ = std::move(source);
  m.epoch_ = options.epoch;
  m.hash_seed_ = options.hash_seed;
  m.index_reserve_ = index_reserve(m.options_);
  m.extents_ = std::make_unique<Extent[]>(kMaxExtents);

  // The root has space for every extent that can ever exist, so that it never moves.
  RKV_RETURN_IF_ERROR(m.make_root([](const rdma::Region& region) { return region.remote_key(); }));
  const std::uint32_t depth = directory_depth_for(m.options_);
  const std::size_t directory_length = round_up(std::size_t{8} << depth, kPageBytes);
  RKV_ASSIGN_OR_RETURN(m.directory_, m.source_(directory_length));
  m.allocated_ += directory_length;
  m.segments_ =
      std::make_unique<Segments>(m.directory_->bytes(), depth, m.options_.groups_per_segment,
                                 m.options_.max_segments, m.epoch_);
  m.write_root(m.roots_.front());
  m.rewrite_keys(0);
  RKV_RETURN_IF_ERROR(m.take_first_segments());
  RKV_ASSIGN_OR_RETURN([[maybe_unused]] const Extent data, m.add_extent(ExtentEntry::kData));
  return memory;
}

Status StoreMemory::take_first_segments() {
  const std::uint32_t count = options_.initial_segments;
  const auto depth = static_cast<std::uint32_t>(std::countr_zero(count));
  for (std::uint32_t i = 0; i < count; ++i) {
    if (segments_->unused() == 0) {
      RKV_ASSIGN_OR_RETURN(const Extent extent, add_extent(ExtentEntry::kIndex));
      segments_->add_extent(extent.id, segments_in(extent));
    }
    std::optional<Segment> segment = segments_->take();
    RKV_CHECK(segment.has_value(), "a new extent has unused segments");
    segment->depth = depth;
    const std::uint32_t prefix = i << (KeyHash::kPrefixBits - depth);
    write_empty_segment(*segment, prefix);
    segments_->show(prefix, *segment);
    segments_->set_route(prefix, *segment);
  }
  return {};
}

// --------------------------------------------------------------------------------------- extents

std::size_t StoreMemory::max_data_bytes() const {
  return options_.memory_bytes - roots_.size() * root().bytes().size() - directory_->bytes().size();
}

std::size_t StoreMemory::next_extent_bytes(ExtentEntry::Kind kind) const {
  if (extent_count() == kMaxExtents) return 0;
  std::size_t room = options_.memory_bytes - std::min(options_.memory_bytes, allocated_bytes());
  if (kind == ExtentEntry::kIndex) {
    const std::size_t most = segment_bytes() * options_.max_segments;
    room = std::min(room, most - std::min(most, index_bytes_));
    const std::size_t bytes = std::min(room, options_.index_extent_bytes);
    return bytes / segment_bytes() * segment_bytes();
  }
  const std::size_t reserved = std::max(index_reserve_ - std::min(index_reserve_, index_bytes_),
                                        options_.index_growth * index_bytes_);
  room -= std::min(room, reserved);
  const std::size_t bytes = std::min(room, options_.data_extent_bytes) / kPageBytes * kPageBytes;
  // A very short extent is useless: records would not fit, and the table has a fixed number of
  // entries.
  return bytes >= std::min(kMinDataExtentBytes, options_.data_extent_bytes) ? bytes : 0;
}

Result<StoreMemory::Extent> StoreMemory::add_extent(ExtentEntry::Kind kind) {
  const std::size_t bytes = next_extent_bytes(kind);
  if (bytes == 0) return fail(Code::kOutOfMemory, "the memory limit is reached");
  // A tiny index (tests) is smaller than a page; its region is not.
  RKV_ASSIGN_OR_RETURN(auto region, source_(round_up(bytes, kPageBytes)));
  const MutableBytes all = region->bytes();
  RKV_CHECK(all.size() >= bytes && reinterpret_cast<std::uintptr_t>(all.data()) % kPageBytes == 0,
            "a region source must give whole pages");
  const std::uint32_t id = extent_count();
  extents_[id] = {
      .id = id, .kind = kind, .base = all.data(), .length_bytes = bytes, .region = region.get()};
  regions_.push_back(std::move(region));
  {
    // If a key changes in between, rewrite_keys(), which follows the change, writes the new key.
    const MutexLock lock(keys_mutex_);
    for (const Root& root : roots_)
      write_extent(root, extents_[id]);
    extent_count_.store(id + 1, std::memory_order_release);
    for (const Root& root : roots_)
      write_identity(root);  // (MEMORY-4)
  }
  allocated_.fetch_add(round_up(bytes, kPageBytes), std::memory_order_relaxed);
  if (kind == ExtentEntry::kIndex) index_bytes_ += bytes;
  return extents_[id];
}

// ------------------------------------------------------------------------------------------ lines

void StoreMemory::write_empty_segment(Segment segment, std::uint32_t prefix) {
  for (std::uint32_t i = 0; i < groups_per_segment(); ++i) {
    const GroupPlace place = segments_->group(segment, i);
    Group group;
    group.header = GroupHeader{.depth = segment.depth, .prefix = prefix}.encode();
    group.checksum = group_checksum(group, epoch_, place);
    copy_to_shared(reinterpret_cast<std::byte*>(this->group(place)),
                   std::as_bytes(std::span(&group, 1)));
  }
}

Status StoreMemory::make_root(KeyOf key_of) {
  const std::size_t length = round_up(root_bytes(kMaxExtents), kPageBytes);
  RKV_ASSIGN_OR_RETURN(auto region, source_(length));
  allocated_ += length;
  roots_.push_back({.region = std::move(region), .key_of = std::move(key_of)});
  return {};
}

Result<std::size_t> StoreMemory::add_root(KeyOf key_of) {
  RKV_RETURN_IF_ERROR(make_root(std::move(key_of)));
  write_root(roots_.back());
  rewrite_keys(roots_.size() - 1);
  return roots_.size() - 1;
}

void StoreMemory::rewrite_keys(std::size_t root) {
  const MutexLock lock(keys_mutex_);
  write_keys(roots_[root]);
}

void StoreMemory::write_root(const Root& root) {
  write_line(root, kTickOffset, MarkLine{.value = tick()}, epoch_);
  write_line(root, kWalMarkOffset, MarkLine{}, epoch_);
  write_line(root, kSyncMarkOffset, MarkLine{}, epoch_);
  write_line(root, kGroupLineOffset, GroupLine{}, epoch_);
}

void StoreMemory::write_keys(Root& root) {
  write_line(root, kDirectoryLineOffset,
             DirectoryLine{.generation = ++root.generation,
                           .address = directory_->address(),
                           .remote_key = root.key_of(*directory_),
                           .global_depth = static_cast<std::uint8_t>(segments_->directory_depth()),
                           .groups_per_segment = static_cast<std::uint16_t>(groups_per_segment()),
                           .hash_seed = hash_seed_},
             epoch_);
  for (std::uint32_t id = 0; id < extent_count(); ++id)
    write_extent(root, extents_[id]);
  write_identity(root);
}

void StoreMemory::write_extent(const Root& root, const Extent& extent) {
  write_line(root, kExtentTableOffset + extent.id * kExtentEntryBytes,
             ExtentEntry{.address = extent.region->address(),
                         .remote_key = root.key_of(*extent.region),
                         .units = static_cast<std::uint32_t>(extent.units()),
                         .id = extent.id,
                         .kind = extent.kind},
             epoch_);
}

void StoreMemory::write_identity(const Root& root) {
  write_line(root, kIdentityOffset,
             IdentityLine{.extent_count = extent_count(),
                          .epoch = epoch_,
                          .flags = options_.report_reads ? IdentityLine::kReportReads : 0},
             epoch_);
}

template <class Line>
void StoreMemory::write_line(const Root& root, std::size_t offset, Line line, std::uint64_t epoch) {
  seal_line(line, epoch, offset);
  // A line torn between old and new words does not verify, and is read again. The last word is a
  // release store: it publishes the other words and what they lead to (MEMORY-4).
  const Bytes bytes = std::as_bytes(std::span(&line, 1));
  std::byte* const shared = root.region->bytes().data() + offset;
  copy_to_shared(shared, bytes.first(bytes.size() - 8));
  store_word(reinterpret_cast<std::uint64_t*>(shared + bytes.size() - 8), line.checksum,
             std::memory_order_release);
}

void StoreMemory::set_tick(std::uint64_t tick_ms) {
  for (const Root& root : roots_)
    write_line(root, kTickOffset, MarkLine{.value = tick_ms}, epoch_);
  tick_ms_.store(tick_ms, std::memory_order_relaxed);
}

void StoreMemory::set_marks(Version wal, Version sync) {
  for (const Root& root : roots_) {
    write_line(root, kWalMarkOffset, MarkLine{.value = wal.bits}, epoch_);
    write_line(root, kSyncMarkOffset, MarkLine{.value = sync.bits}, epoch_);
  }
}

void StoreMemory::set_group_line(Nanos tick, Version replicated) {
  for (const Root& root : roots_) {
    write_line(root, kGroupLineOffset,
               GroupLine{.tick = static_cast<std::uint64_t>(tick), .replicated = replicated},
               epoch_);
  }
}

// ----------------------------------------------------------------------------- groups and records

Group* StoreMemory::group(GroupPlace place) const {
  RKV_CHECK(place.extent < kMaxExtents && extents_[place.extent].kind == ExtentEntry::kIndex &&
                place.offset() + kGroupBytes <= extents_[place.extent].length_bytes,
            "group outside the index");
  return reinterpret_cast<Group*>(extents_[place.extent].base + place.offset());
}

std::byte* StoreMemory::record(Location location, std::uint64_t units) const {
  const Extent& extent = extents_[location.extent()];
  RKV_CHECK(extent.kind == ExtentEntry::kData && location.unit() + units <= extent.units(),
            "record outside the data extents");
  return extent.base + location.offset();
}

}  // namespace rkv::server
