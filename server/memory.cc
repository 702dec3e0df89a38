#include "server/memory.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace rkv::server {

namespace {

constexpr std::size_t kPageBytes = 4096;

std::unexpected<Error> too_many_extents() {
  return fail(Code::kInvalidArgument, "more memory than 4096 extents hold (2 TiB)");
}

Status check_options(const MemoryOptions& options) {
  if (options.memory_bytes < kMinMemoryBytes) {
    return fail(Code::kOutOfMemory, "a store needs at least 16 MiB of memory");
  }
  if (options.memory_bytes > kMaxExtents * kMaxExtentBytes) return too_many_extents();
  if (options.epoch == 0) return fail(Code::kInvalidArgument, "the epoch must not be 0");
  const std::uint32_t groups = options.groups_per_segment;
  if (!std::has_single_bit(groups) || groups < 2 || groups > 4096) {
    return fail(Code::kInvalidArgument, "groups per segment: a power of two from 2 to 4096");
  }
  const std::uint32_t segments = options.index_segments;
  if (segments != 0 && (!std::has_single_bit(segments) || segments > (1U << KeyHash::kPrefixBits) ||
                        segments > options.memory_bytes / 2 / (groups * kGroupBytes))) {
    return fail(Code::kInvalidArgument,
                "index segments: a power of two, at most half of the memory");
  }
  const std::size_t extent = options.max_extent_bytes;
  if (extent > kMaxExtentBytes || extent < (std::size_t{1} << 20) || extent % kPageBytes != 0) {
    return fail(Code::kInvalidArgument, "an extent has 1 to 512 MiB, in whole pages");
  }
  return {};
}

}  // namespace

std::uint32_t index_segments_for(std::size_t memory_bytes, std::uint32_t groups_per_segment) {
  const std::size_t segment_bytes = std::size_t{groups_per_segment} * kGroupBytes;
  return static_cast<std::uint32_t>(
      std::bit_floor(std::max<std::size_t>(memory_bytes / 6 / segment_bytes, 1)));
}

Result<std::unique_ptr<StoreMemory>> StoreMemory::create(const MemoryOptions& options,
                                                         const RegionSource& source) {
  RKV_RETURN_IF_ERROR(check_options(options));
  std::unique_ptr<StoreMemory> memory(new StoreMemory);
  StoreMemory& m = *memory;
  m.epoch_ = options.epoch;
  m.hash_seed_ = options.hash_seed;
  m.groups_per_segment_ = options.groups_per_segment;
  m.segment_count_ = options.index_segments != 0
                         ? options.index_segments
                         : index_segments_for(options.memory_bytes, options.groups_per_segment);
  m.depth_ = static_cast<std::uint32_t>(std::countr_zero(m.segment_count_));

  // The root has room for every extent that can ever exist, so that it never moves.
  const std::size_t root_length = round_up(root_bytes(kMaxExtents), kPageBytes);
  const std::size_t directory_length = round_up(std::size_t{m.segment_count_} * 8, kPageBytes);
  const std::size_t index_length = std::size_t{m.group_count()} * kGroupBytes;
  // Segments are aligned to their size in their extent and never straddle two: both are powers
  // of two.
  const std::size_t index_extent = std::min(index_length, std::bit_floor(options.max_extent_bytes));
  m.groups_per_extent_ = static_cast<std::uint32_t>(index_extent / kGroupBytes);
  const std::size_t data_length =
      options.memory_bytes - root_length - directory_length - index_length;
  // Extents of one size rather than full ones and a rest: no extent is too small to be useful.
  const std::size_t data_extents =
      (data_length + options.max_extent_bytes - 1) / options.max_extent_bytes;
  if (index_length / index_extent + data_extents > kMaxExtents) return too_many_extents();
  const std::size_t data_extent = data_length / data_extents / kPageBytes * kPageBytes;

  RKV_ASSIGN_OR_RETURN(m.root_, source(root_length));
  RKV_ASSIGN_OR_RETURN(m.directory_, source(directory_length));
  RKV_RETURN_IF_ERROR(m.add_extents(index_length, index_extent, ExtentEntry::kIndex, source));
  m.index_extent_count_ = static_cast<std::uint32_t>(m.extents_.size());
  RKV_RETURN_IF_ERROR(
      m.add_extents(data_extent * data_extents, data_extent, ExtentEntry::kData, source));
  m.write_groups();
  m.write_directory();
  m.write_root();
  return memory;
}

Status StoreMemory::add_extents(std::size_t total_bytes, std::size_t each_bytes,
                                ExtentEntry::Kind kind, const RegionSource& source) {
  for (std::size_t at = 0; at < total_bytes; at += each_bytes) {
    // A tiny index (tests) is smaller than a page; its region is not.
    RKV_ASSIGN_OR_RETURN(auto region, source(round_up(each_bytes, kPageBytes)));
    const MutableBytes bytes = region->bytes();
    RKV_CHECK(bytes.size() >= each_bytes &&
                  reinterpret_cast<std::uintptr_t>(bytes.data()) % kPageBytes == 0,
              "a region source must give whole pages");
    const Extent extent{.id = static_cast<std::uint32_t>(extents_.size()),
                        .base = bytes.data(),
                        .length_bytes = each_bytes};
    write_line(kExtentTableOffset + extent.id * kExtentEntryBytes,
               ExtentEntry{.address = region->address(),
                           .remote_key = region->remote_key(),
                           .units = static_cast<std::uint32_t>(extent.units()),
                           .id = extent.id,
                           .kind = kind});
    extents_.push_back(extent);
    regions_.push_back(std::move(region));
  }
  return {};
}

void StoreMemory::write_groups() {
  for (std::uint32_t ordinal = 0; ordinal < group_count(); ++ordinal) {
    const GroupPlace place{.extent = ordinal / groups_per_extent_,
                           .number = ordinal % groups_per_extent_};
    const std::uint32_t segment = ordinal / groups_per_segment_;
    Group group;
    group.header =
        GroupHeader{.depth = depth_, .prefix = segment << (KeyHash::kPrefixBits - depth_)}.encode();
    group.checksum = group_checksum(group, epoch_, place);
    copy_to_shared(reinterpret_cast<std::byte*>(this->group(place)),
                   std::as_bytes(std::span(&group, 1)));
  }
}

void StoreMemory::write_directory() {
  const std::uint32_t segments_per_extent = groups_per_extent_ / groups_per_segment_;
  auto* entries = reinterpret_cast<std::uint64_t*>(directory_->bytes().data());
  for (std::uint32_t segment = 0; segment < segment_count_; ++segment) {
    const DirectoryEntry entry{.extent = segment / segments_per_extent,
                               .segment = segment % segments_per_extent,
                               .depth = depth_};
    store_word(&entries[segment], entry.encode(epoch_));
  }
}

void StoreMemory::write_root() {
  write_line(kDirectoryLineOffset,
             DirectoryLine{.generation = 1,
                           .address = directory_->address(),
                           .remote_key = directory_->remote_key(),
                           .global_depth = static_cast<std::uint8_t>(depth_),
                           .groups_per_segment = static_cast<std::uint16_t>(groups_per_segment_),
                           .hash_seed = hash_seed_});
  set_tick(0);
  set_marks({}, {});
  write_line(
      kIdentityOffset,
      IdentityLine{.extent_count = static_cast<std::uint32_t>(extents_.size()), .epoch = epoch_});
}

template <class Line>
void StoreMemory::write_line(std::size_t offset, Line line) {
  seal_line(line, epoch_, offset);
  // Relaxed stores: a line torn between old and new words does not verify and is read again.
  copy_to_shared(root_->bytes().data() + offset, std::as_bytes(std::span(&line, 1)));
}

void StoreMemory::set_tick(std::uint64_t tick_ms) {
  write_line(kTickOffset, MarkLine{.value = tick_ms});
}

void StoreMemory::set_marks(Version wal, Version sync) {
  write_line(kWalMarkOffset, MarkLine{.value = wal.bits});
  write_line(kSyncMarkOffset, MarkLine{.value = sync.bits});
}

GroupPlace StoreMemory::home(KeyHash hash) const {
  const std::uint32_t ordinal =
      hash.directory_index(depth_) * groups_per_segment_ + hash.group_index(groups_per_segment_);
  return {.extent = ordinal / groups_per_extent_, .number = ordinal % groups_per_extent_};
}

Group* StoreMemory::group(GroupPlace place) const {
  RKV_CHECK(place.extent < extents_.size() && place.number < groups_per_extent_,
            "group outside the index");
  return reinterpret_cast<Group*>(extents_[place.extent].base + place.offset());
}

std::byte* StoreMemory::record(Location location, std::uint64_t units) const {
  RKV_CHECK(location.extent() >= index_extent_count_ && location.extent() < extents_.size() &&
                location.unit() + units <= extents_[location.extent()].units(),
            "record outside the data extents");
  return extents_[location.extent()].base + location.offset();
}

}  // namespace rkv::server
