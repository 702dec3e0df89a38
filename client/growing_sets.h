// How many sets of a set-associative cache are in use, and which of them is a hash's. A cache
// starts with few sets and doubles them until it has all, one set after the other: memory is
// touched as it is needed and from its beginning, and no step takes longer than to move one set.
//
// With c sets a hash h, a fraction of 1, has set floor(h c), and with 2c sets floor(2 h c), which
// is twice the former or one more. Sets are split from the last to the first, so that both places
// are free: above 2s + 1 lies what came from sets above s, and what lay there has gone up already.
//
//   GrowingSets sets(most);
//   const auto [from, low, high] = sets.split();  // each of `from` is to be moved where of() says
#pragma once

#include <cstddef>
#include <cstdint>

namespace rkv::client {

// A set that is full is seldom the one that is split next: this many are split at most until it has
// room. Beyond that it loses what was used least lately, and is found full again. Each is a copy of
// 2 KiB at most.
inline constexpr int kMostSplits = 64;

class GrowingSets {
 public:
  struct Split {
    std::size_t from;
    std::size_t low;  // 0 alone is split to itself and another
    std::size_t high;
  };

  GrowingSets() = default;
  // At most `most` sets, below 2^31, and hardly fewer.
  explicit GrowingSets(std::size_t most) : most_(most) { reset(); }

  // Sets in use.
  std::size_t count() const { return 2 * round_ - unsplit_; }
  bool may_split() const { return unsplit_ != round_ || 2 * round_ <= most_; }

  // Of `hash` the upper 32 bits count; there must be sets.
  std::size_t of(std::uint64_t hash) const {
    const std::uint64_t fraction = hash >> 32;
    const std::size_t set = (fraction * round_) >> 32;
    return set < unsplit_ ? set : (fraction * 2 * round_) >> 32;
  }

  // REQUIRES may_split().
  Split split() {
    const std::size_t from = --unsplit_;
    if (unsplit_ == 0) round_ = unsplit_ = 2 * round_;
    return {.from = from, .low = 2 * from, .high = 2 * from + 1};
  }

  // As few as at the start; the cache is to be empty.
  void reset() {
    constexpr std::size_t kFirst = 16;
    round_ = most_;
    while (round_ >= 2 * kFirst)
      round_ /= 2;
    unsplit_ = round_;
  }

 private:
  std::size_t most_ = 0;
  std::size_t round_ = 0;    // sets when this doubling began
  std::size_t unsplit_ = 0;  // of these; the lower ones
};

}  // namespace rkv::client
