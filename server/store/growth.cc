#include "server/store/growth.h"

#include <algorithm>

namespace rkv::server {

namespace {
constexpr const char* kMakingRoom = "the server is freeing or adding memory: retry";
}

Growth::Growth(RecordTable& table, Evictor& evictor)
    : memory_(table.memory()),
      index_(table.index()),
      blocks_(table.blocks()),
      locks_(table.locks()),
      evictor_(evictor),
      low_segments_(std::max(1U, memory_.index_extent_segments() / 2)),
      low_data_bytes_(memory_.data_extent_bytes() / 2) {
  update_growth_limits();
}

Result<Location> Growth::allocate(std::uint64_t units) {
  if (units * kUnitBytes > memory_.data_extent_bytes()) [[unlikely]] {
    return fail(Code::kTooLarge,
                "the value does not fit into the server's memory: start it with a --memory of at "
                "least eight values of this size");
  }
  const auto block = blocks_.allocate(units);
  call_for_memory_if_low();
  if (block) return *block;
  if (const auto kept = evictor_.take_run(units)) return *kept;
  return no_room(ExtentEntry::kData, units);
}

std::unexpected<Error> Growth::no_vacancy(GroupPlace home, KeyHash hash) {
  return index_.is_crowded(home) ? pair_is_crowded(hash) : no_room(ExtentEntry::kIndex, 0);
}

void Growth::split_if_crowded(KeyHash hash) {
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

bool Growth::is_low(ExtentEntry::Kind kind) const {
  const Need& need = kind == ExtentEntry::kIndex ? index_need_ : data_need_;
  if (!need.may_grow.load(std::memory_order_relaxed)) return false;
  if (need.starved.load(std::memory_order_relaxed)) return true;
  return kind == ExtentEntry::kIndex ? memory_.segments().unused() < low_segments_
                                     : blocks_.free_bytes() < low_data_bytes_;
}

// At most once (GROWTH-2), because a call may wake a thread.
void Growth::call_for_memory_if_low() {
  if (called_.load(std::memory_order_relaxed) || !wants_memory()) return;
  if (!called_.exchange(true, std::memory_order_relaxed) && call_) call_();
}

// Records that an operation found no space, and chooses its error. Free memory may still exist, in
// pieces that are too small.
std::unexpected<Error> Growth::no_room(ExtentEntry::Kind kind, std::uint64_t units) {
  const bool index = kind == ExtentEntry::kIndex;
  Need& need = index ? index_need_ : data_need_;
  need.starved.store(true, std::memory_order_relaxed);
  call_for_memory_if_low();
  // If nothing is evictable, the evictor retries on its timer, not per refused write. In a cache
  // that passes: what takes the memory are values on their way in.
  if (!index && evictor_.may_free(units)) {
    if (!evictor_.has_nothing_to_evict()) evictor_.call(units);
    return fail(Code::kBusy, kMakingRoom);
  }
  if (grow_failed_.load(std::memory_order_relaxed)) {
    return fail(Code::kOutOfMemory,
                "the server cannot get more memory now (its log says why): delete some keys");
  }
  if (need.may_grow.load(std::memory_order_relaxed)) {
    return fail(Code::kBusy, kMakingRoom);
  }
  if (!index && evictor_.is_hopeless(units)) {
    if (evictor_.drops()) {
      return fail(Code::kOutOfMemory,
                  "one-sided counters lie too close for a value of this length: "
                  "delete some of them");
    }
    if (evictor_.has_room_in_pieces(units)) {
      return fail(Code::kOutOfMemory,
                  "free memory is in pieces too short for the value, and nothing "
                  "can be moved there: delete some keys beside each other, or all");
    }
  }
  return fail(Code::kOutOfMemory, index ? "the index is full: delete some keys"
                                        : "no memory for the record: delete some keys");
}

// Random keys are separated by a split, at once or when memory is added. Keys chosen to collide are
// not (GROWTH-3).
std::unexpected<Error> Growth::pair_is_crowded(KeyHash hash) {
  const Segments& segments = memory_.segments();
  const Segment segment = segments.route(hash);
  const bool may_split =
      segments.unused() != 0 || (index_need_.may_grow.load(std::memory_order_relaxed) &&
                                 !grow_failed_.load(std::memory_order_relaxed));
  if (may_split && segment.depth != segments.directory_depth() && index_.wants_split(segment)) {
    call_for_memory_if_low();
    return fail(Code::kBusy, kMakingRoom);
  }
  return fail(Code::kOutOfMemory,
              "too many keys share this key's index groups: delete some of them");
}

Result<bool> Growth::grow() {
  bool grown = false;
  for (const auto kind : {ExtentEntry::kIndex, ExtentEntry::kData}) {
    while (is_low(kind)) {
      const auto extent = memory_.add_extent(kind);
      grow_failed_.store(!extent, std::memory_order_relaxed);
      update_evictor();
      if (!extent) return std::unexpected(extent.error());
      take_in(*extent);
      grown = true;
    }
  }
  called_.store(false, std::memory_order_relaxed);
  return grown;
}

void Growth::take_in(const StoreMemory::Extent& extent) {
  if (extent.kind == ExtentEntry::kData) {
    data_need_.starved.store(false, std::memory_order_relaxed);
    blocks_.add_extent(extent);
  } else {
    index_need_.starved.store(false, std::memory_order_relaxed);
    index_.add_extent(extent);
    memory_.segments().add_extent(extent.id, memory_.segments_in(extent));
    split_all_crowded();
  }
  update_growth_limits();
}

void Growth::update_growth_limits() {
  index_need_.may_grow.store(memory_.next_extent_bytes(ExtentEntry::kIndex) != 0,
                             std::memory_order_relaxed);
  data_need_.may_grow.store(memory_.next_extent_bytes(ExtentEntry::kData) != 0,
                            std::memory_order_relaxed);
  update_evictor();
}

void Growth::update_evictor() {
  evictor_.set_data_is_full_grown(!data_need_.may_grow.load(std::memory_order_relaxed) ||
                                  grow_failed_.load(std::memory_order_relaxed));
}

// Splits segments that had to wait for memory. No further key may come that would cause their
// split.
void Growth::split_all_crowded() {
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
