#include "server/store/run_maker.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace rkv::server {

namespace {
constexpr std::size_t kTries = 4;  // in one make()
constexpr std::size_t kFew = 8;    // stretches that are compared in each
// More than this is paid in the last try only: uses of a record that is dropped, or the part of a
// stretch that must be moved.
constexpr double kHot = 2;
constexpr double kFull = 0.75;
constexpr std::size_t kTriesToMove = 32;        // to find what is not full costs less
constexpr Nanos kKeptFor = 1000 * kNanosPerMs;  // longer than a client waits before it asks
constexpr Nanos kUntouched = 20 * kNanosPerMs;  // before another length may take its place
constexpr Nanos kHopelessFor = 1000 * kNanosPerMs;
constexpr Nanos kPassesWithin = 20 * kNanosPerMs;  // so long a search waits for what may pass
}  // namespace

void RunMaker::ask(std::uint64_t units) {
  if (units < kLeastUnits) return;
  std::uint64_t longest = longest_asked_.load(std::memory_order_relaxed);
  while (longest < units &&
         !longest_asked_.compare_exchange_weak(longest, units, std::memory_order_relaxed)) {
  }
  std::uint64_t shortest = shortest_asked_.load(std::memory_order_relaxed);
  while ((shortest == 0 || shortest > units) &&
         !shortest_asked_.compare_exchange_weak(shortest, units, std::memory_order_relaxed)) {
  }
}

// Returns the length whose turn it is, and the one whose turn it is not; 0: none. One may come
// without the other if somebody asks meanwhile.
std::uint64_t RunMaker::take_asked(std::uint64_t* other) {
  std::uint64_t longest = longest_asked_.exchange(0, std::memory_order_relaxed);
  std::uint64_t shortest = shortest_asked_.exchange(0, std::memory_order_relaxed);
  if (longest == 0 || shortest == 0) longest = shortest = std::max(longest, shortest);
  if (longest != shortest) serves_shortest_ = !serves_shortest_;
  if (serves_shortest_) std::swap(longest, shortest);
  *other = shortest;
  return longest;
}

// Not for a record of less than half the length: the long ones would never get theirs.
std::optional<Location> RunMaker::take(std::uint64_t units) {
  Location block;
  std::uint64_t length = 0;
  {
    const MutexLock lock(kept_mutex_);
    length = kept_.units;
    if (kept_.count == 0 || length < units || length / 2 > units) return std::nullopt;
    block = kept_.blocks[--kept_.count];
  }
  if (length == units) return block;
  table_.blocks().release_unwritten(block, length);
  return table_.blocks().allocate(units);
}

bool RunMaker::is_hopeless(std::uint64_t units) const {
  return units >= hopeless_units_.load(std::memory_order_relaxed) &&
         clock_.now() < hopeless_until_.load(std::memory_order_relaxed);
}

void RunMaker::give_up() {
  Kept kept;
  {
    const MutexLock lock(kept_mutex_);
    std::swap(kept, kept_);
  }
  for (const Location block : std::span(kept.blocks).first(kept.count))
    table_.blocks().release_unwritten(block, kept.units);
}

std::uint64_t RunMaker::capacity_units() const {
  return table_.blocks().usage().capacity_bytes / kUnitBytes;
}

// REQUIRES: nothing is kept.
bool RunMaker::keep_free_block(std::uint64_t units) {
  const auto block = table_.blocks().allocate(units);
  if (!block) return false;
  const MutexLock lock(kept_mutex_);
  kept_ = {.blocks = {*block}, .count = 1, .units = units, .since = clock_.now()};
  return true;
}

bool RunMaker::make(const std::function<void()>& pause) {
  std::uint64_t other = 0;
  const std::uint64_t units = take_asked(&other);
  {
    const MutexLock lock(kept_mutex_);
    const Nanos age = clock_.now() - kept_.since;
    if (kept_.count != 0 && age < (kept_.suits(units) || units == 0 ? kKeptFor : kUntouched)) {
      for (const std::uint64_t asked : {units, other})
        if (!kept_.suits(asked)) ask(asked);  // next time
      return true;
    }
  }
  give_up();
  if (units == 0) return false;
  if (keep_free_block(units)) return true;
  if (is_hopeless(units) || (units >= passing_units_ && clock_.now() < passing_until_))
    return false;
  may_pass_ = false;
  table_.blocks().put_back_everything();
  const std::uint64_t gone = clearer_.gone();
  // Several at once, since a client that stores one often stores the next. One, where that is too
  // long for the places between what stays.
  const std::uint64_t several =
      std::clamp<std::uint64_t>(capacity_units() / 512 / units, 1, kMostKept);
  if (clear_stretch(units, several, pause)) return true;
  if (several > 1 && clear_stretch(units, 1, pause)) return true;
  if (drops()) return clearer_.gone() != gone;
  // A thread that holds a block for a moment may lose the processor for longer than all tries take.
  if (may_pass_) {
    passing_units_ = units;
    passing_until_ = clock_.now() + kPassesWithin;
  } else {
    set_hopeless(units);
  }
  return false;
}

// Short stretches are as many more as they are shorter.
bool RunMaker::clear_stretch(std::uint64_t units, std::size_t count,
                             const std::function<void()>& pause) {
  const std::size_t tries =
      (drops() ? kTries : kTriesToMove) *
      std::max<std::size_t>(
          1, std::min<std::uint64_t>(capacity_units() / 512 / units, kMostKept) / count);
  for (std::size_t i = 0; i < tries && !is_hopeless(units); ++i) {
    const auto stretch = cheapest_stretch(units, count, /*costly_too=*/i + 1 == tries, pause);
    if (!stretch) continue;
    Kept kept{.units = units};
    kept.count =
        clearer_.clear(*stretch, units, std::span(kept.blocks).first(count), pause, &may_pass_);
    if (kept.count == 0) continue;
    kept.since = clock_.now();
    const MutexLock lock(kept_mutex_);
    kept_ = kept;
    return true;
  }
  return false;
}

// Begins where a block or a free run does: what began before would have to go too. Only the last
// one of an extent may overlap the one before. Nothing: long records leave no stretch.
std::optional<Stretch> RunMaker::next_stretch(std::uint64_t units, std::size_t count) {
  RecordAllocator& blocks = table_.blocks();
  const std::uint32_t extents = blocks.extents();
  const auto length = static_cast<std::uint32_t>(count * units);
  for (std::uint32_t tried = 0; tried <= extents;) {
    if (extent_ >= extents) extent_ = 0;
    const std::uint32_t end = blocks.units_in(extent_);
    if (unit_ >= end || length > end) {
      ++extent_;
      unit_ = 0;
      ++tried;
      continue;
    }
    const ExtentSpace& space = blocks.space(extent_);
    const ExtentSpace::Item item = space.item_of(unit_);
    std::uint32_t begin = item.unit == unit_ ? unit_ : item.unit + item.units;
    const bool last = begin >= end - length;
    if (last) begin = space.item_of(end - length).unit;
    const Stretch stretch{.number = extent_, .begin = begin, .end = begin + length};
    const std::uint32_t after_long = clearer_.end_of_long_block(stretch, units);
    if (last) {
      unit_ = end;
    } else {
      unit_ = after_long == 0 ? stretch.end : after_long;
    }
    if (after_long == 0) return stretch;
  }
  return std::nullopt;
}

// Returns the cheapest of the next few stretches. nullopt: each of them has a block that may not
// go, or all of them cost much, and later ones may cost less.
std::optional<Stretch> RunMaker::cheapest_stretch(std::uint64_t units, std::size_t count,
                                                  bool costly_too,
                                                  const std::function<void()>& pause) {
  struct Weighed {
    Stretch stretch;
    double cost = 0;
  };
  std::array<Weighed, kFew> few;
  for (Weighed& one : few) {
    const auto stretch = next_stretch(units, count);
    if (!stretch) {
      if (!drops() && count == 1) set_hopeless(units);
      return std::nullopt;
    }
    one = {.stretch = *stretch, .cost = clearer_.cost_of(*stretch)};
    pause();
  }
  std::ranges::sort(few, {}, &Weighed::cost);
  if (few.front().cost >= (drops() ? kHot : kFull) && !costly_too) return std::nullopt;
  bool may_change = false;
  for (const Weighed& one : few) {
    const auto obstacle = clearer_.look_for_obstacle(one.stretch, pause);
    if (obstacle == StretchClearer::Obstacle::kNone) {
      useless_units_ = 0;
      return one.stretch;
    }
    may_change = may_change || obstacle == StretchClearer::Obstacle::kPasses;
  }
  if (may_change) {
    may_pass_ = true;
    useless_units_ = 0;
  } else if (count == 1) {
    found_useless(units);
  }
  return std::nullopt;
}

// Says nothing of stretches of another length.
void RunMaker::found_useless(std::uint64_t units) {
  if (useless_length_ != units) useless_units_ = 0;
  useless_length_ = units;
  useless_units_ += kFew * units;
  if (useless_units_ < capacity_units()) return;
  useless_units_ = 0;
  set_hopeless(units);
}

void RunMaker::set_hopeless(std::uint64_t units) {
  hopeless_units_.store(units, std::memory_order_relaxed);
  hopeless_until_.store(clock_.now() + kHopelessFor, std::memory_order_relaxed);
}

}  // namespace rkv::server
