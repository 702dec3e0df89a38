// Growth of the store: splitting segments, adding extents.
#include "server/store/store_impl.h"

namespace rkv::server {

// Splits the segment of this hash if too many of its keys are stashed and an unused segment exists.
// Otherwise its keys stay in the stash until another key is stashed, or memory is added. REQUIRES:
// no lock is held.
void Store::Impl::split_if_crowded(KeyHash hash) {
  Segments& segments = memory_.segments();
  const Segment crowded = segments.route(hash);
  if (!index_.wants_split(crowded) || crowded.depth == segments.directory_depth()) return;
  if (segments.unused() != 0) {
    const PairLocks::Segment locked(locks_, segments.group(crowded, 0),
                                    segments.groups_per_segment());
    // Another thread split it.
    if (segments.route(hash) != crowded || !index_.wants_split(crowded)) return;
    if (const std::optional<Segment> fresh = segments.take()) {
      index_.split(crowded, *fresh);
      locked.counters().splits += 1;
    }
  }
  call_for_memory_if_low();
}

bool Store::Impl::is_low(ExtentEntry::Kind kind) const {
  const Need& need = kind == ExtentEntry::kIndex ? index_need_ : data_need_;
  if (!need.may_grow.load(std::memory_order_relaxed)) return false;
  if (need.starved.load(std::memory_order_relaxed)) return true;
  return kind == ExtentEntry::kIndex ? memory_.segments().unused() < low_segments_
                                     : records_.free_bytes() < low_data_bytes_;
}

// Signals the growth thread at most once until grow() returns without an error, because a call may
// wake a thread.
void Store::Impl::call_for_memory_if_low() {
  if (called_.load(std::memory_order_relaxed) || !wants_memory()) return;
  if (!called_.exchange(true, std::memory_order_relaxed) && call_) call_();
}

// Records that an operation found no space, and chooses its error. Free memory may still exist, in
// pieces that are too small.
std::unexpected<Error> Store::Impl::no_room(ExtentEntry::Kind kind) {
  const bool index = kind == ExtentEntry::kIndex;
  Need& need = index ? index_need_ : data_need_;
  need.starved.store(true, std::memory_order_relaxed);
  call_for_memory_if_low();
  if (!index && is_full_grown()) {
    // If nothing is evictable, the evictor retries on its timer, not per refused write.
    if (!has_nothing_to_evict()) {
      if (!called_evictor_.exchange(true, std::memory_order_relaxed) && call_evictor_) {
        call_evictor_();
      }
      return fail(Code::kBusy, "the server is making room: try again a little later");
    }
  }
  if (grow_failed_.load(std::memory_order_relaxed)) {
    return fail(Code::kOutOfMemory,
                "the server cannot get more memory now (its log says why): delete some keys");
  }
  if (need.may_grow.load(std::memory_order_relaxed)) {
    return fail(Code::kBusy, "the server is making room: try again a little later");
  }
  return fail(Code::kOutOfMemory, index ? "the index is full: delete some keys"
                                        : "no room for the record: delete some keys");
}

// Random keys are separated by a split, at once or when memory is added. Keys chosen to collide are
// not, and must not make the index grow to its limit.
std::unexpected<Error> Store::Impl::pair_is_crowded(KeyHash hash) {
  const Segments& segments = memory_.segments();
  const Segment segment = segments.route(hash);
  const bool may_split =
      segments.unused() != 0 || (index_need_.may_grow.load(std::memory_order_relaxed) &&
                                 !grow_failed_.load(std::memory_order_relaxed));
  if (may_split && segment.depth != segments.directory_depth() && index_.wants_split(segment)) {
    call_for_memory_if_low();
    return fail(Code::kBusy, "the server is making room: try again a little later");
  }
  return fail(Code::kOutOfMemory,
              "too many keys have the same place in the index as this one: delete some of them");
}

Result<bool> Store::Impl::grow() {
  bool grown = false;
  for (const auto kind : {ExtentEntry::kIndex, ExtentEntry::kData}) {
    while (is_low(kind)) {
      const auto extent = memory_.add_extent(kind);
      grow_failed_.store(!extent, std::memory_order_relaxed);
      if (!extent) return std::unexpected(extent.error());
      take_in(*extent);
      grown = true;
    }
  }
  called_.store(false, std::memory_order_relaxed);
  return grown;
}

void Store::Impl::take_in(const StoreMemory::Extent& extent) {
  if (extent.kind == ExtentEntry::kData) {
    data_need_.starved.store(false, std::memory_order_relaxed);
    records_.add_extent(extent);
  } else {
    index_need_.starved.store(false, std::memory_order_relaxed);
    index_.add_extent(extent);
    memory_.segments().add_extent(extent.id, memory_.segments_in(extent));
    split_all_crowded();
  }
  update_growth_limits();
}

void Store::Impl::update_growth_limits() {
  index_need_.may_grow.store(memory_.next_extent_bytes(ExtentEntry::kIndex) != 0,
                             std::memory_order_relaxed);
  data_need_.may_grow.store(memory_.next_extent_bytes(ExtentEntry::kData) != 0,
                            std::memory_order_relaxed);
}

// Splits segments that had to wait for memory. No further key may come that would cause their
// split.
void Store::Impl::split_all_crowded() {
  const Segments& segments = memory_.segments();
  for (std::uint32_t id = 0; id < memory_.extent_count(); ++id) {
    if (memory_.extent(id).kind != ExtentEntry::kIndex) continue;
    const std::uint32_t count = memory_.segments_in(memory_.extent(id));
    for (std::uint32_t number = 0; number < count; ++number) {
      const Segment segment{.extent = id, .number = number};
      if (!index_.wants_split(segment)) continue;
      // The header is read without its lock: a hint, checked again under the lock.
      const std::uint64_t header = load_word(&memory_.group(segments.group(segment, 0))->header);
      const std::uint64_t prefix = GroupHeader::decode(header).prefix;
      split_if_crowded(KeyHash(prefix << (64 - KeyHash::kPrefixBits)));
    }
  }
}

}  // namespace rkv::server
