// The number of sets in use of a set-associative cache, and the set of each hash. A cache starts
// with few sets and doubles them until it has all. It splits one set after the other: memory is
// touched as it is needed, from its beginning, and a step moves one set at most.
//
// A hash is a fraction h of 1. With c sets its set is floor(h c); with 2c sets it is floor(2 h c),
// which is twice the former or one more. So set s splits into sets 2s and 2s + 1. Sets are split
// from the last to the first, so both target sets are free. Their old entries have moved up
// already, and the sets above 2s + 1 hold entries of sets above s.
//
//   GrowingSets sets(most);
//   const auto [from, low, high] = sets.split();  // move each entry of `from` to its set, of()
#pragma once

#include <cstddef>
#include <cstdint>

namespace rkv::client {

// A full set is seldom the next one to split, so a cache splits at most this many sets to relieve a
// full set. After that the set loses its least recently used entry, and is found full again. Each
// split copies 2 KiB at most.
inline constexpr int kMostSplits = 64;

class GrowingSets {
 public:
  struct Split {
    std::size_t from;
    std::size_t low;  // only set 0 is split into itself and another set
    std::size_t high;
  };

  GrowingSets() = default;
  // Uses at most `most` sets, below 2^31, and hardly fewer.
  explicit GrowingSets(std::size_t most) : most_(most) { reset(); }

  // Number of sets in use.
  std::size_t count() const { return 2 * round_ - unsplit_; }
  bool may_split() const { return unsplit_ != round_ || 2 * round_ <= most_; }

  // The set of a hash. Only the upper 32 bits of `hash` count. REQUIRES count() > 0.
  std::size_t of(std::uint64_t hash) const {
    const std::uint64_t fraction = hash >> 32;
    const std::size_t set = (fraction * round_) >> 32;
    return set < unsplit_ ? set : (fraction * 2 * round_) >> 32;
  }

  // Splits the next set; the caller moves its entries. REQUIRES may_split().
  Split split() {
    const std::size_t from = --unsplit_;
    if (unsplit_ == 0) round_ = unsplit_ = 2 * round_;
    return {.from = from, .low = 2 * from, .high = 2 * from + 1};
  }

  // Goes back to the first number of sets. REQUIRES an empty cache.
  void reset() {
    constexpr std::size_t kFirst = 16;
    round_ = most_;
    while (round_ >= 2 * kFirst)
      round_ /= 2;
    unsplit_ = round_;
  }

 private:
  std::size_t most_ = 0;
  std::size_t round_ = 0;    // number of sets when this doubling began
  std::size_t unsplit_ = 0;  // of these, the number not yet split: the lower sets
};

}  // namespace rkv::client
