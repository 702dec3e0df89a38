#include "server/memory/segments.h"

#include "common/check.h"
#include "server/memory/publish_hooks.h"

namespace rkv::server {

Segments::Segments(MutableBytes directory, std::uint32_t directory_depth,
                   std::uint32_t groups_per_segment, std::uint32_t max_segments,
                   std::uint64_t epoch)
    : directory_depth_(directory_depth),
      groups_per_segment_(groups_per_segment),
      max_segments_(max_segments),
      epoch_(epoch),
      shared_(reinterpret_cast<std::uint64_t*>(directory.data())),
      routes_(std::make_unique<std::atomic<std::uint64_t>[]>(std::size_t{1} << directory_depth)) {
  RKV_CHECK(directory.size() >= std::size_t{8} << directory_depth, "directory too small");
}

std::optional<Segment> Segments::take() {
  if (unused() == 0 || in_use() >= max_segments_) return std::nullopt;
  const MutexLock lock(mutex_);
  if (unused_segments_.empty() || in_use() >= max_segments_) return std::nullopt;
  Unused& last = unused_segments_.back();
  const Segment segment{.extent = last.extent, .number = last.first++};
  if (last.first == last.end) unused_segments_.pop_back();
  unused_.fetch_sub(1, std::memory_order_relaxed);
  in_use_.fetch_add(1, std::memory_order_relaxed);
  return segment;
}

void Segments::add_extent(std::uint32_t extent, std::uint32_t segments) {
  const MutexLock lock(mutex_);
  unused_segments_.push_back({.extent = extent, .first = 0, .end = segments});
  unused_.fetch_add(segments, std::memory_order_relaxed);
}

Segments::Range Segments::entries_of(std::uint32_t prefix, std::uint32_t depth) const {
  RKV_CHECK(depth <= directory_depth_, "a segment deeper than the directory");
  return {.first = prefix >> (KeyHash::kPrefixBits - directory_depth_),
          .count = std::size_t{1} << (directory_depth_ - depth)};
}

// One store per entry: a client READs old or new entries, and both are hints.
void Segments::show(std::uint32_t prefix, Segment segment) {
  const Range range = entries_of(prefix, segment.depth);
  const std::uint64_t entry =
      DirectoryEntry{.extent = segment.extent, .segment = segment.number, .depth = segment.depth}
          .encode(epoch_);
  for (std::size_t i = 0; i < range.count; ++i)
    publish_word(Step::kDirectory, &shared_[range.first + i], entry);
}

void Segments::set_route(std::uint32_t prefix, Segment segment) {
  const Range range = entries_of(prefix, segment.depth);
  for (std::size_t i = 0; i < range.count; ++i)
    routes_[range.first + i].store(encode(segment), std::memory_order_release);
}

}  // namespace rkv::server
