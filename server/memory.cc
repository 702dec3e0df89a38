#include "server/memory.h"

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "server/memory_sizes.h"

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

  // The root has room for every extent that can ever exist, so that it never moves.
  const std::size_t root_length = round_up(root_bytes(kMaxExtents), kPageBytes);
  const std::uint32_t depth = directory_depth_for(m.options_);
  const std::size_t directory_length = round_up(std::size_t{8} << depth, kPageBytes);
  RKV_ASSIGN_OR_RETURN(m.root_, m.source_(root_length));
  RKV_ASSIGN_OR_RETURN(m.directory_, m.source_(directory_length));
  m.allocated_ = root_length + directory_length;
  m.segments_ =
      std::make_unique<Segments>(m.directory_->bytes(), depth, m.options_.groups_per_segment,
                                 m.options_.max_segments, m.epoch_);
  m.write_root();
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
  return options_.memory_bytes - root_->bytes().size() - directory_->bytes().size();
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
  // A scrap is no use: records would not fit, and the table has so many places and no more.
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
  extents_[id] = {.id = id,
                  .kind = kind,
                  .base = all.data(),
                  .length_bytes = bytes,
                  .local_key = region->local_key()};
  write_line(kExtentTableOffset + id * kExtentEntryBytes,
             ExtentEntry{.address = region->address(),
                         .remote_key = region->remote_key(),
                         .units = static_cast<std::uint32_t>(bytes / kUnitBytes),
                         .id = id,
                         .kind = kind});
  regions_.push_back(std::move(region));
  extent_count_.store(id + 1, std::memory_order_release);
  allocated_.fetch_add(round_up(bytes, kPageBytes), std::memory_order_relaxed);
  if (kind == ExtentEntry::kIndex) index_bytes_ += bytes;
  write_identity();  // (M4)
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

void StoreMemory::write_root() {
  write_line(kDirectoryLineOffset,
             DirectoryLine{.generation = 1,
                           .address = directory_->address(),
                           .remote_key = directory_->remote_key(),
                           .global_depth = static_cast<std::uint8_t>(segments_->directory_depth()),
                           .groups_per_segment = static_cast<std::uint16_t>(groups_per_segment()),
                           .hash_seed = hash_seed_});
  set_tick(0);
  set_marks({}, {});
  write_identity();
}

void StoreMemory::write_identity() {
  write_line(kIdentityOffset, IdentityLine{.extent_count = extent_count(), .epoch = epoch_});
}

template <class Line>
void StoreMemory::write_line(std::size_t offset, Line line) {
  seal_line(line, epoch_, offset);
  // A line torn between old and new words does not verify and is read again. The last word releases
  // the others and what they lead to (M4).
  const Bytes bytes = std::as_bytes(std::span(&line, 1));
  std::byte* const shared = root_->bytes().data() + offset;
  copy_to_shared(shared, bytes.first(bytes.size() - 8));
  store_word(reinterpret_cast<std::uint64_t*>(shared + bytes.size() - 8), line.checksum,
             std::memory_order_release);
}

void StoreMemory::set_tick(std::uint64_t tick_ms) {
  write_line(kTickOffset, MarkLine{.value = tick_ms});
  tick_ms_.store(tick_ms, std::memory_order_relaxed);
}

void StoreMemory::set_marks(Version wal, Version sync) {
  write_line(kWalMarkOffset, MarkLine{.value = wal.bits});
  write_line(kSyncMarkOffset, MarkLine{.value = sync.bits});
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
