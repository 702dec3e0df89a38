// How many sets of a set-associative cache are in use, and which of them is a hash's: linear
// hashing (Litwin, VLDB 1980). A cache starts with few sets and adds one at a time, at its end, for
// which one other set is split: memory is touched as it is needed and from its beginning, and no
// step takes longer than one set does.
//
//   GrowingSets sets(most);
//   const auto [from, to] = sets.grow();  // what belongs to `to` by of() is to be moved there
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rkv::client {

// A set that is full is seldom the one that is split next: this many are added at most until it has
// room. Beyond that it loses what was used least lately, and is found full again. Each is a copy of
// 2 KiB at most.
inline constexpr int kMostSplits = 64;

class GrowingSets {
 public:
  struct Split {
    std::size_t from;
    std::size_t to;
  };

  GrowingSets() = default;
  explicit GrowingSets(std::size_t most) : most_(most) { reset(); }

  std::size_t count() const { return count_; }
  std::size_t most() const { return most_; }
  bool may_grow() const { return count_ < most_; }

  // Below count(). Of `hash` the lower bits count; there must be sets.
  std::size_t of(std::uint64_t hash) const {
    const std::size_t set = hash & (2 * low_mask_ + 1);
    return set < count_ ? set : set & low_mask_;
  }

  // One set more, the last; only that of `from` changes its set by it, and only to `to`.
  Split grow() {
    const Split split{.from = count_ & low_mask_, .to = count_};
    if (++count_ == 2 * (low_mask_ + 1)) low_mask_ = 2 * low_mask_ + 1;
    return split;
  }

  // As few as at the start; the cache is to be empty.
  void reset() {
    constexpr std::size_t kFirst = 16;
    count_ = std::bit_floor(std::min(most_, kFirst));
    low_mask_ = count_ == 0 ? 0 : count_ - 1;
  }

 private:
  std::size_t most_ = 0;
  std::size_t count_ = 0;
  std::size_t low_mask_ = 0;  // the greatest 2^k - 1 below count_: sets of hashes not yet split
};

}  // namespace rkv::client
